"""Loops: counted, ended by a value, with outputs for each turn, with shapes that change."""

import jax
import numpy as np
import pytest

import anyjax
from anyjax.errors import DataDependent
from tests.onnx.agree import agree, model, normal, slope

SUM = """m (float[3] x) => (float[3] last, float[5, 3] rows)
{ last, rows = Loop (five, true, x) <body = b (int64 i, bool go, float[3] s) =>
  (bool on, float[3] t, float[3] row)
  { on = Identity(go) u = Mul(s, w) t = Tanh(u) row = Exp(t) }> }"""
WEIGHTS = {"five": np.int64(5), "true": np.asarray(True), "w": np.float32([0.5, 1.5, 2.0])}


def test_a_counted_loop_is_a_scan():
    converted = agree(model(SUM, weights=WEIGHTS), normal(3))
    slope(converted, normal(3))
    program = str(jax.make_jaxpr(converted.apply)(converted.params, normal(3)))
    assert "scan[" in program and "while[" not in program


WHILE = """m (float[3] x) => (float[3] last)
{ last = Loop (, true, x) <body = b (int64 i, bool go, float[3] s) => (bool on, float[3] t)
  { t = Mul(s, two) n = ReduceMax <keepdims: int = 0> (t) on = Less(n, limit) }> }"""


def test_a_value_ends_the_loop_and_it_has_a_gradient():
    weights = {"true": np.asarray(True), "two": np.float32([2, 2, 2]), "limit": np.float32(50)}
    x = np.float32([1, 2, 3.3])
    converted = agree(model(WHILE, weights=weights), x)
    gradient = jax.grad(lambda x: converted.apply(converted.params, x).sum())(x)
    np.testing.assert_allclose(gradient, [16, 16, 16])


def test_a_number_of_turns_that_is_an_argument():
    text = SUM.replace("(float[3] x)", "(int64 five, float[3] x)", 1)
    weights = {k: v for k, v in WEIGHTS.items() if k != "five"}
    converted = anyjax.from_onnx(model(text.replace("[5, 3]", "[n, 3]"), weights=weights))
    x = normal(3)
    with pytest.warns(anyjax.errors.StaticArgument, match="five"):
        for n in (0, 2):
            assert converted(np.int64(n), x)["rows"].shape == (n, 3)
    with pytest.raises(DataDependent, match=r"turns of a Loop"):
        jax.jit(lambda n: converted.apply(converted.params, n, x))(np.int64(3))
    assert converted.apply(converted.params, jax.numpy.asarray(2), x)["rows"].shape == (2, 3)


GROWS = """m (float[1] x) => (float[n] last)
{ last = Loop (three, true, x) <body = b (int64 i, bool go, float[k] s) => (bool on, float[j] t)
  { on = Identity(go) f = Cast <to: int = 1> (i) c = Reshape(f, one)
    t = Concat <axis: int = 0> (s, c) }> }"""


def test_a_value_that_grows():
    weights = {"three": np.int64(3), "true": np.asarray(True), "one": np.int64([1])}
    agree(model(GROWS, weights=weights), normal(1))


def test_turns_draw_different_numbers():
    text = """m (float[3] x) => (float[3] last, float[2, 3] rows)
    { last, rows = Loop (two, true, x) <body = b (int64 i, bool go, float[3] s) =>
      (bool on, float[3] t, float[3] row)
      { on = Identity(go) row = RandomNormalLike(s) t = Add(s, row) }> }"""
    weights = {"two": np.int64(2), "true": np.asarray(True)}
    converted = anyjax.from_onnx(model(text, weights=weights))
    rows = converted(normal(3), rng=jax.random.key(0))["rows"]
    assert np.abs(rows[0] - rows[1]).min() > 0
    with pytest.raises(anyjax.errors.MissingRng, match="RandomNormalLike"):
        converted(normal(3))
