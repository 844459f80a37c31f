"""A checkpoint's Flax source, edited by hand: each token sees the last 24 alone.

python examples/flax_edited_llama.py
"""

import pathlib
import types

import jax.numpy as jnp
import optax
import torch
from flax import nnx
from transformers import AutoModelForCausalLM, AutoTokenizer

import anyjax

CHECKPOINT = "examples/tiny-llama"
HAND = {"mask=attention_mask,": "mask=attention_mask, local_window_size=(23, 0),"}


def imported(name: str, text: str):
    """The text as a module."""
    module = types.ModuleType(name)
    exec(compile(text, name, "exec"), vars(module))
    return module


def loaded(file):
    """Its model with the checkpoint's weights, which any edit leaves their names."""
    model = file.load_params(file.LlamaForCausalLM(rngs=nnx.Rngs(0)), CHECKPOINT)
    model.eval()
    return model


@nnx.jit
def loss(model, tokens):
    """The mean over a text's tokens."""
    logits = model(tokens[:, :-1], jnp.ones_like(tokens[:, :-1]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


if __name__ == "__main__":
    ids = torch.randint(0, 100, (2, 8))
    module = AutoModelForCausalLM.from_pretrained(CHECKPOINT)
    text = anyjax.flax.source(module, input_ids=ids, attention_mask=torch.ones_like(ids))
    edited = text
    for written, ours in HAND.items():
        assert written in text
        edited = edited.replace(written, ours)
    code = pathlib.Path(__file__).read_text()
    tokens = AutoTokenizer.from_pretrained(CHECKPOINT)(code)["input_ids"]
    tokens = jnp.array(tokens)[None, :250]
    whole, window = (loaded(imported(*x)) for x in (("whole", text), ("window", edited)))
    short = abs(loss(whole, tokens[:, :20]) - loss(window, tokens[:, :20]))
    print(f"20 tokens: the losses differ by {short:.1e}")
    print(
        f"250 tokens: {loss(whole, tokens):.3f} with all before, {loss(window, tokens):.3f} with 24"
    )
