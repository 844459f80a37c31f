"""Random numbers that torch code draws with other generators than torch's."""

import random
import warnings

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import FrozenDraw

pytestmark = pytest.mark.sample(every=5)


@pytest.mark.parametrize("draw", [random.random, np.random.rand], ids=["python", "numpy"])
def test_a_compiled_draw_is_said_and_one_outside_is_drawn_again(draw):
    model, x = anyjax.from_torch(lambda x: x * draw()), np.ones(2, np.float32)
    with pytest.warns(FrozenDraw, match=r"random.*repeats these numbers[\s\S]*pass rng"):
        model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (model.apply({}, x) != model.apply({}, x)).all()


def test_torch_draws_are_no_such_draws():
    import jax

    model, x = anyjax.from_torch(torch.nn.Dropout()).train(), np.ones(2, np.float32)
    model(x, rng=jax.random.key(0))
