"""Batch normalization, which JAX never writes, beside JAX's own arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.stablehlo.texts import called, function
from tests.tolerance import assert_close

X = np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32)
S, O = np.array([[1, 2, 3], [0.5, -1, 0]], np.float32)
TYPES = "tensor<4x3x5xf32>", "tensor<3xf32>"
OPTIONS = "epsilon = 1.0e-3 : f32, feature_index = 1 : i64"


def by_hand(x, scale, offset):
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    along = lambda v: v[:, None]
    out = (x - along(mean)) / jnp.sqrt(along(variance) + 1e-3) * along(scale) + along(offset)
    return out, mean, variance


def test_training():
    text = function(
        "4x3x5xf32 3xf32 3xf32",
        "4x3x5xf32 3xf32 3xf32",
        f'%out:3 = "stablehlo.batch_norm_training"(%0, %1, %2) {{{OPTIONS}}} : '
        f"({TYPES[0]}, {TYPES[1]}, {TYPES[1]}) -> ({TYPES[0]}, {TYPES[1]}, {TYPES[1]})",
    )
    assert_close(called(text, X, S, O), by_hand(X, S, O), reduction=64)


def test_inference():
    _, mean, variance = by_hand(X, S, O)
    text = function(
        "4x3x5xf32 3xf32 3xf32 3xf32 3xf32",
        "4x3x5xf32",
        f'%out = "stablehlo.batch_norm_inference"(%0, %1, %2, %3, %4) {{{OPTIONS}}} : '
        f"({TYPES[0]}, {', '.join(TYPES[1:] * 4)}) -> {TYPES[0]}",
    )
    want = by_hand(X, S, O)[0]
    assert_close(called(text, X, S, O, np.asarray(mean), np.asarray(variance)), want, reduction=64)


def test_gradient():
    _, mean, variance = by_hand(X, S, O)
    text = function(
        "4x3x5xf32 3xf32 3xf32 3xf32 4x3x5xf32",
        "4x3x5xf32 3xf32 3xf32",
        f'%out:3 = "stablehlo.batch_norm_grad"(%0, %1, %2, %3, %4) {{{OPTIONS}}} : '
        f"({TYPES[0]}, {', '.join(TYPES[1:] * 3)}, {TYPES[0]}) -> "
        f"({TYPES[0]}, {TYPES[1]}, {TYPES[1]})",
    )
    back = np.cos(X)
    want = jax.vjp(lambda *a: by_hand(*a)[0], X, S, O)[1](back)
    assert_close(
        called(text, X, S, np.asarray(mean), np.asarray(variance), back), want, reduction=256
    )
