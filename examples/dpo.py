"""Preferences without a reward model (DPO, arXiv:2305.18290): a language model comes to prefer
double quotes. Policy and reference are one set of weights: python examples/dpo.py

Source of the loss: -log sigmoid(beta * (how much more than the reference the policy prefers it)).
"""

import builtins

import jax
import jax.numpy as jnp
import numpy as np
import optax
from transformers import AutoTokenizer

import anyjax

FOLDER, BETA = "examples/tiny-llama", 0.1


def pairs(tokenizer, words: list[str]) -> dict[str, np.ndarray]:
    """ids [words, 2, length] of what is preferred and of what is not, and which are no padding."""
    texts = [text for word in words for text in (f'name = "{word}"\n', f"name = '{word}'\n")]
    found = tokenizer(texts, padding=True, padding_side="right", return_tensors="np")
    cut = lambda x: x.reshape(len(words), 2, -1).astype(np.int32)
    return {"ids": cut(found.input_ids), "real": cut(found.attention_mask)}


def told(call, batch) -> jax.Array:
    """Log-probabilities [words, 2] of whole texts."""
    ids, real = (x.reshape(-1, x.shape[-1]) for x in (batch["ids"], batch["real"]))
    logits = call(input_ids=ids[:, :-1], use_cache=False).logits
    each = optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:])
    return -(each * real[:, 1:]).sum(-1).reshape(-1, 2)


def preferring(start):
    """The loss; the adapters ``start``, which change nothing yet, make the policy the reference."""

    def loss(model, batch):
        reference = told(lambda **given: model.apply(start, **given), batch)
        gain = told(model, batch) - jax.lax.stop_gradient(reference)
        margin = BETA * (gain[:, 0] - gain[:, 1])
        right = (margin > 0).mean()
        return -jax.nn.log_sigmoid(margin).mean(), {"margin": margin.mean(), "right": right}

    return loss


if __name__ == "__main__":
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    words = sorted(name for name in dir(builtins) if name.isalpha())
    model = anyjax.train.lora(anyjax.from_pretrained(FOLDER).train(), 4, "q_proj|v_proj", rng=0)
    loss, tx = preferring(jax.tree.map(jnp.copy, model.params)), optax.adam(3e-3)
    state = anyjax.train.TrainState.create(model, tx)
    train, test = pairs(tokenizer, words[::2]), pairs(tokenizer, words[1::2])
    before = anyjax.train.evaluate(state, [test], loss)["margin"]
    batches, step = anyjax.train.Batches(train, 16, key=0), anyjax.train.make_step(loss, tx)
    after = anyjax.train.evaluate(anyjax.train.fit(state, step, batches, epochs=8), [test], loss)
    print(f"margin {before:.2f} -> {after['margin']:.2f}, right of new pairs: {after['right']:.0%}")
