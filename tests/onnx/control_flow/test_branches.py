"""Branches, by values that are known or computed."""

import jax
import numpy as np
import pytest

import anyjax
from anyjax.errors import DataDependent
from tests.onnx.agree import agree, model, normal

IF = """m (float[3] x) => (float[3] y)
{ s = ReduceSum <keepdims: int = 0> (x) c = Greater(s, zero)
  y = If (c) <then_branch = t () => (float[3] a) { a = Exp(x) },
              else_branch = e () => (float[3] b) { b = Mul(x, x) }> }"""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_computed_condition_and_its_gradient(sign):
    x = sign * np.float32([1, 2, 3])
    converted = agree(model(IF, weights={"zero": np.float32(0)}), x)
    gradient = jax.grad(lambda x: converted.apply({}, x).sum())(x)
    np.testing.assert_allclose(gradient, np.exp(x) if sign > 0 else 2 * x, rtol=1e-6)
    assert jax.vmap(lambda x: converted.apply({}, x))(np.stack([x, -x])).shape == (2, 3)


def test_branches_of_different_shapes():
    text = """m (bool c, float[3] x) => (float[n] y)
    { y = If (c) <then_branch = t () => (float[3] a) { a = Exp(x) },
                  else_branch = e () => (float[6] b) { b = Concat <axis: int = 0> (x, x) }> }"""
    converted = anyjax.from_onnx(model(text))
    x = normal(3)
    for c in (True, False):
        assert converted.apply({}, jax.numpy.asarray(c), x).shape == ((3,) if c else (6,))
    with pytest.raises(DataDependent, match=r"cannot be one program[\s\S]*node 'y'"):
        jax.jit(lambda c: converted.apply({}, c, x))(np.asarray(True))
