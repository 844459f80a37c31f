"""Keys of one evaluation."""

from types import SimpleNamespace

import jax
import pytest

from anyjax.errors import MissingRng
from anyjax.stablehlo.core.draws import Draws

NODE = SimpleNamespace(op="Normal")


def test_every_draw_has_a_key_of_its_own():
    draws, again = Draws(), Draws()
    draws.rng = again.rng = jax.random.key(0)
    first, second = (jax.random.key_data(draws.key(NODE)).tolist() for _ in range(2))
    assert first != second and jax.random.key_data(again.key(NODE)).tolist() == first


def test_no_key():
    draws = Draws()
    draws.rng = None
    with pytest.raises(MissingRng, match=r"Normal draws[\s\S]*rng=jax\.random\.key"):
        draws.key(NODE)
