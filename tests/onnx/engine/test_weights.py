"""What is a param, what state, and what stays known."""

import jax
import numpy as np
import pytest

import anyjax
from tests.onnx.agree import agree, model, normal

NET = """m (float[n, 3, 8, 8] x) => (float[n, k] y)
{ c = Conv <pads: ints = [1, 1, 1, 1]> (x, w)
  b = BatchNormalization (c, scale, bias, mean, var)
  r = Clip(b, low, high)
  f = Reshape(r, shape)
  y = Gemm(f, head, last) }"""


def weights():
    return {
        "w": normal(4, 3, 3, 3), "scale": normal(4), "bias": normal(4), "mean": normal(4),
        "var": np.abs(normal(4)) + 1, "low": np.float32(0), "high": np.float32(6),
        "shape": np.int64([0, -1]), "head": normal(256, 2), "last": normal(2),
    }  # fmt: skip


def test_kinds_and_gradient():
    proto = model(NET, weights=weights())
    x = normal(2, 3, 8, 8)
    converted = agree(proto, x, reduction=300)
    assert {*converted.params} == {"w", "scale", "bias", "head", "last"}
    assert {*converted.state} == {"mean", "var"}
    gradient = jax.grad(lambda p: converted.apply(p, x).sum())(converted.params)
    assert all(np.abs(g).max() > 0 for g in gradient.values())


def test_params_by_pattern():
    converted = anyjax.from_onnx(model(NET, weights=weights()), weights="^head|^last")
    assert {*converted.params} == {"head", "last"} and "w" in converted.state
    assert not anyjax.from_onnx(model(NET, weights=weights()), weights=False).params


def test_constants_that_are_weights_and_branches_with_names_of_their_own():
    text = """m (bool c, float[6] x) => (float[6] y) {
      k = Constant <value: tensor = float[6] {1, 2, 3, 4, 5, 6}> ()
      a = Mul(x, k)
      y = If (c) <then_branch = t () => (float[6] u)
        { w = Constant <value: tensor = float[6] {1, 1, 1, 1, 1, 2}> () u = Add(a, w) },
        else_branch = e () => (float[6] v)
        { w = Constant <value: tensor = float[6] {3, 3, 3, 3, 3, 3}> () v = Sub(a, w) }> }"""
    converted = anyjax.from_onnx(model(text))
    assert len(converted.params) == 3 and {"k", "w"} < {*converted.params}
    x = normal(6)
    for c in (True, False):
        agree(model(text), np.asarray(c), x)
    doubled = {k: 2 * v for k, v in converted.params.items()}
    again = anyjax.from_onnx(converted.source.write_back(doubled, {}))
    for c in (True, False):
        want = converted.apply(doubled, np.asarray(c), x)
        np.testing.assert_allclose(again(np.asarray(c), x), want, rtol=1e-6)


def test_wrong_names():
    converted = anyjax.from_onnx(model(NET, weights=weights()))
    with pytest.raises(anyjax.errors.WrongArguments, match="missing weight 'w'"):
        converted.apply({k: v for k, v in converted.params.items() if k != "w"}, normal(2, 3, 8, 8))
