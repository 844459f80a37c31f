"""ScaleAndTranslate with every kernel; partly outside of the image; scales that are traced."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree
from tojax.tensorflow.ops.resize import KERNELS

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 5, 6, 3)).astype(np.float32)
raw = tf.raw_ops
MOVES = [((1.6, 0.55), (0.3, -0.4)), ((0.3, 2.0), (-1.0, 4.0))]


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_scale_and_translate(kernel, antialias):
    how = {"kernel_type": kernel, "antialias": antialias}
    for scale, move in MOVES:
        run = lambda x, scale=scale, move=move: raw.ScaleAndTranslate(
            images=x, size=(7, 4), scale=scale, translation=move, **how
        )
        agree(run, X, vmap=False)
    g = RNG.standard_normal((2, 7, 4, 3)).astype(np.float32)
    run = lambda g: raw.ScaleAndTranslateGrad(
        grads=g, original_image=X, scale=MOVES[0][0], translation=MOVES[0][1], **how
    )
    agree(run, g, grad=False, vmap=False)


def test_traced_scale():
    run = lambda x, scale, move: raw.ScaleAndTranslate(
        images=x, size=(7, 4), scale=scale, translation=move
    )
    agree(run, X, *np.array(MOVES[0], np.float32))
