"""Attention in two calls and in one, rotations, caches, gradients."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

import anyjax
from tests.onnx.with_onnxruntime import assert_agrees, node
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)

RNG = np.random.default_rng(0)
OPSETS = {"": 25}


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


Q, K, V = normal(2, 4, 5, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
FLAT = {"Q": normal(2, 5, 32), "K": normal(2, 5, 16), "V": normal(2, 5, 12)}


def attention(outputs=1, opsets=OPSETS, **how):
    inputs = {name: how.pop(name) for name in [*how] if hasattr(how[name], "dtype")}
    model = anyjax.from_onnx(node("Attention", inputs, outputs, opsets=opsets, **how))
    return model(**inputs)


@pytest.mark.parametrize("version", [23, 24])
@pytest.mark.parametrize("causal", [0, 1])
def test_heads(version, causal):
    how = {"opsets": {"": version}, "is_causal": causal}
    assert_agrees("Attention", {"Q": Q, "K": K, "V": V}, 1, 64, **how)
    assert_agrees("Attention", FLAT, 1, 64, q_num_heads=4, kv_num_heads=2, softcap=2.0, **how)


def test_a_step_with_the_past_is_the_last_row():
    whole = attention(Q=Q, K=K, V=V, is_causal=1)
    past = {"past_key": K[:, :, :4], "past_value": V[:, :, :4]}
    inputs = {"Q": Q[:, :, 4:], "K": K[:, :, 4:], "V": V[:, :, 4:], "mask": None, **past}
    model = anyjax.from_onnx(node("Attention", inputs, 3, opsets=OPSETS, is_causal=1))
    y, key, value = model(**{n: x for n, x in inputs.items() if x is not None}).values()
    assert_close(y, whole[:, :, 4:], reduction=64)
    assert (key == K).all() and (value == V).all()


@pytest.mark.parametrize("left,right", [(1, 0), (2, 1), (-1, 1)])
def test_windows_are_masks(left, right):
    place = np.arange(5)
    far = place[:, None] - place
    mask = (far <= left if left >= 0 else far < 9) & (-far <= right)
    windows = {"left_window_size": left, "right_window_size": right}
    got = attention(Q=Q, K=K, V=V, **windows)
    assert_close(got, attention(Q=Q, K=K, V=V, attn_mask=mask))


def test_a_row_without_keys_is_zero_and_has_a_finite_gradient():
    mask = np.ones((5, 5), bool)
    mask[2] = False
    model = anyjax.from_onnx(
        node("Attention", {"Q": Q, "K": K, "V": V, "attn_mask": mask}, opsets=OPSETS)
    )
    apply = lambda *x: model.apply(model.params, *x, mask)
    assert (apply(Q, K, V)[:, :, 2] == 0).all()
    check_grads(apply, (Q, K, V), 1, ["rev"], atol=2e-2, rtol=2e-2, eps=1e-2)


@pytest.mark.parametrize("interleaved,size", [(0, 0), (1, 0), (0, 4), (1, 4)])
def test_rotation(interleaved, size):
    half = (size or 8) // 2
    inputs = {
        "X": Q,
        "cos": normal(9, half),
        "sin": normal(9, half),
        "at": RNG.integers(0, 9, (2, 5)),
    }
    how = {"interleaved": interleaved, "rotary_embedding_dim": size, "num_heads": 4}
    assert_agrees("RotaryEmbedding", inputs, opsets={"": 23}, **how)
    inputs["X"] = normal(2, 5, 32)
    assert_agrees("RotaryEmbedding", inputs, opsets={"": 23}, **how)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_caches(mode):
    inputs = {
        "past": K,
        "update": normal(2, 2, 2, 8),
        "at": np.array([1, 4 if mode[0] == "c" else 3]),
    }
    model = anyjax.from_onnx(node("TensorScatter", inputs, opsets={"": 24}, mode=mode))
    want = K.copy()
    for row, start in enumerate(inputs["at"]):
        for i in range(2):
            want[row, :, (start + i) % 5] = inputs["update"][row, :, i]
    assert (model(**inputs) == want).all()


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_in_two_calls_is_that_of_one(rule):
    decay = -abs(normal(2, 6, 2)) if "gated" in rule else None
    beta = RNG.random((2, 6, 2), np.float32) if "delta" in rule else None
    arrays = {"q": normal(2, 6, 16), "k": normal(2, 6, 8), "v": normal(2, 6, 6)}
    how = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule, "opsets": {"": 27}}

    def run(part, past):
        cut = lambda x: None if x is None else x[:, part]
        inputs = {n: cut(x) for n, x in arrays.items()}
        inputs |= {"past": past, "decay": cut(decay), "beta": cut(beta)}
        model = anyjax.from_onnx(node("LinearAttention", inputs, 2, **how))
        return model(**{n: x for n, x in inputs.items() if x is not None}).values()

    out, state = run(slice(None), None)
    start, past = run(slice(0, 2), None)
    end, last = run(slice(2, 6), np.asarray(past))
    assert_close(jax.numpy.concatenate([start, end], 1), out, reduction=64)
    assert_close(last, state, reduction=64)
