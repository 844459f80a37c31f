"""model.cache: loops written with it give what generate gives, and misuse is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from tests.hf.generation.test_generate import built, padded
from tests.models import tiny

pytestmark = pytest.mark.sample(every=10)


def greedy(model, ids, mask, count):
    """The likeliest ``count`` tokens, as one program with a while_loop."""

    @jax.jit
    def loop(params, ids, mask):
        logits, cache = model.cache(32).prefill(params, ids, mask)
        tokens = jnp.zeros((len(ids), count), jnp.int32).at[:, 0].set(logits.argmax(-1))

        def body(carry):
            i, tokens, cache = carry
            logits, cache = cache.step(params, tokens[:, i])
            return i + 1, tokens.at[:, i + 1].set(logits.argmax(-1)), cache

        return jax.lax.while_loop(lambda c: c[0] < count - 1, body, (0, tokens, cache))[1]

    return loop(model.params, ids, mask)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral", "mamba", "t5"])
def test_a_loop_equals_generate(name):
    _, model = built(name)
    ids, mask = (x.numpy() for x in padded())
    if name in ("mamba", "t5"):  # no left padding: a state sees it, an encoder pads on the right
        ids, mask = tiny.ids(9, 3).numpy(), None
    ends = {"eos_token_id": -1, "max_new_tokens": 8}
    want = anyjax.generate(model, ids, mask, do_sample=False, **ends)
    got = greedy(model, ids, mask, 8)
    np.testing.assert_array_equal(got, want[:, -8:])


def test_logits_of_a_step_are_those_of_the_whole_text():
    _, model = built("llama")
    ids, mask = (x.numpy() for x in padded())
    _, cache = model.cache(12).prefill(model.params, ids[:, :-2], mask[:, :-2])
    for i in (7, 8):
        got, cache = cache.step(model.params, ids[:, i])
        places = np.maximum(mask[:, : i + 1].cumsum(1) - 1, 0)
        args = {"attention_mask": mask[:, : i + 1], "position_ids": places}
        want = model(ids[:, : i + 1], **args, use_cache=False).logits[:, -1]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_other_params_and_gradients():
    _, model = built("llama")
    ids = tiny.ids(5, 1).numpy()

    def loss(params):
        logits, cache = model.cache(8).prefill(params, ids)
        return cache.step(params, logits.argmax(-1))[0].max()

    halved = jax.tree.map(lambda x: x * 0.5, model.params)
    assert float(loss(halved)) != float(loss(model.params))
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(jax.grad(loss)(model.params)))


def test_beyond_its_length():
    _, model = built("llama")
    ids = tiny.ids(5, 1).numpy()
    logits, cache = model.cache(6).prefill(model.params, ids)
    logits, cache = cache.step(model.params, logits.argmax(-1))
    assert np.isfinite(logits).all()
    with pytest.raises(WrongArguments, match="position 7"):
        cache.step(model.params, logits.argmax(-1))
    beyond = jax.jit(lambda c, t: c.step(model.params, t)[0])(cache, logits.argmax(-1))
    assert np.isnan(beyond).all()
    with pytest.raises(WrongArguments, match="position 5"):
        model.cache(4).prefill(model.params, ids)


def test_misuse_is_refused():
    _, model = built("llama")
    ids = tiny.ids(5, 1).numpy()
    with pytest.raises(WrongArguments, match="empty"):
        model.cache(8).step(model.params, ids[:, 0])
    with pytest.raises(WrongArguments, match="filled"):
        model.cache(8).prefill(model.params, ids)[1].prefill(model.params, ids)
    with pytest.raises(Unsupported, match="generates no text"):
        anyjax.from_torch(tiny.build("vit")[0]).cache(8)
