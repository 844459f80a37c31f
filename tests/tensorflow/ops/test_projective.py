"""Projective transformations in every mode."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 5, 6, 3)).astype(np.float32)
TURNS = np.array(
    [[0.8, 0.3, -1.3, -0.2, 1.1, 0.4, 0.01, -0.02], [1, 0, -9.3, 0, 1, 13.7, 0, 0]], np.float32
)
raw = tf.raw_ops


@pytest.mark.parametrize("interpolation", ["NEAREST", "BILINEAR"])
@pytest.mark.parametrize("fill", ["CONSTANT", "REFLECT", "WRAP", "NEAREST"])
def test_transforms(interpolation, fill):
    how = {"interpolation": interpolation, "fill_mode": fill}
    run = lambda x, t: raw.ImageProjectiveTransformV3(
        images=x, transforms=t, output_shape=(7, 4), fill_value=0.5, **how
    )
    agree(run, X, TURNS, vmap=False)
    agree(run, X, TURNS[:1], grad=False)
    run = lambda x: raw.ImageProjectiveTransformV2(
        images=x, transforms=TURNS[:1], output_shape=(5, 6), **how
    )
    agree(run, X)
    agree(run, (X * 9).astype(np.int32), vmap=False)


def test_places_at_infinity():
    turn = np.array([[1, 0, 0, 0, 1, 0, -0.5, 0]], np.float32)
    run = lambda x: raw.ImageProjectiveTransformV3(
        images=x, transforms=turn, output_shape=(5, 6), fill_value=0.5, interpolation="NEAREST"
    )
    agree(run, X, grad=False)
