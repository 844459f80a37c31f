"""Operators that have no row: the bodies that ONNX's schemas have for them."""

import jax
import numpy as np

import anyjax
from tests.onnx.agree import model, normal


def test_a_body_for_the_types_of_a_call():
    text = "m (int64 n) => (float[k] y) { y = HannWindow <periodic: int = 1> (n) }"
    proto = model(text, 17)
    converted = anyjax.from_onnx(proto)
    got = converted.apply({}, np.int64(6))
    np.testing.assert_allclose(got, np.sin(np.pi * np.arange(6) / 6) ** 2, atol=1e-6)


def test_a_body_has_attributes_gradients_and_left_out_outputs():
    text = "m (float[2, 4] x, int64[2] t) => (float y) { y = NegativeLogLikelihoodLoss (x, t) }"
    converted = anyjax.from_onnx(model(text, 22))
    x, labels = normal(2, 4), np.int32([1, 3])
    gradient = jax.grad(lambda x: converted.apply({}, x, labels))(x)
    want = np.zeros((2, 4))
    want[[0, 1], labels] = -0.5
    np.testing.assert_allclose(gradient, want)
