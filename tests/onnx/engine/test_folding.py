"""Shapes that a graph computes stay known."""

import jax
import numpy as np
from jax import export

import anyjax
from tests.onnx.agree import agree, model, normal

FLAT = """m (float[b, c, h, w] x) => (float[b, k] y)
{ s = Shape(x) b0 = Gather(s, zero) u = Unsqueeze(b0, axis) one = Neg(minus)
  cut = Slice(s, one, most) p = ReduceProd <keepdims: int = 1> (cut)
  target = Concat <axis: int = 0> (u, p) y = Reshape(x, target) }"""
CONSTANTS = {
    "zero": np.int64(0), "axis": np.int64([0]), "minus": np.int64([-1]),
    "most": np.int64([2**63 - 1]),
}  # fmt: skip


def test_shapes_in_64_bits():
    agree(model(FLAT, weights=CONSTANTS), normal(2, 3, 4, 5))


def test_symbolic_sizes():
    converted = anyjax.from_onnx(model(FLAT, weights=CONSTANTS))
    shape = export.symbolic_shape("b, 3, 4, w")
    program = export.export(jax.jit(lambda x: converted.apply({}, x)))(
        jax.ShapeDtypeStruct(shape, np.float32)
    )
    assert program.call(normal(5, 3, 4, 2)).shape == (5, 24)


def test_small_floats_are_computed_by_the_lowerings():
    text = """m (float[1, 1, 4, 4] x) => (float[1, 1, h, w] y)
    { s = Shape(x) f = Cast <to: int = 1> (s) t = Mul(f, by) r = Floor(t) i = Cast <to: int = 7> (r)
      tail = Slice(i, two, four) y = Tile(x, i) }"""
    weights = {"by": np.float32([1, 1, 0.5, 0.75]), "two": np.int64([2]), "four": np.int64([4])}
    agree(model(text, weights=weights), normal(1, 1, 4, 4))


def test_a_division_of_integers_is_truncated():
    text = "m (float[7] x) => (float[n] y) { d = Div(a, b) y = Tile(x, d) }"
    weights = {"a": np.int64([-7]), "b": np.int64([-2])}
    assert agree(model(text, weights=weights), normal(7))(normal(7)).shape == (21,)
