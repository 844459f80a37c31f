"""Inputs and weights of fused cells."""

import numpy as np

RNG = np.random.default_rng(1)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32) / 2


X, CS, H = random(4, 2, 3), random(2, 5), random(2, 5)
W, B, PEEPS = random(8, 20), random(20), [random(5) for _ in range(3)]
NAMES = "x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b"
GIVEN = CS, H, W, *PEEPS, B
