"""Names and arrays of stacks."""

import jax.numpy as jnp
import pytest

from anyjax.transforms.rolling.rolled import Group
from anyjax.transforms.rolling.stacks import name_of, stacked

pytestmark = pytest.mark.sample(every=3)


@pytest.mark.parametrize(
    ("members", "name"),
    [
        (["h.0.w", "h.1.w"], "h.*.w"),
        (["h.3.w", "h.4.w"], "h.*.w"),
        (["h.0.w", "h.2.w", "h.4.w"], "h.2n.w"),
        (["h.1.w", "h.4.w", "h.7.w"], "h.3n+1.w"),
        (["h.0.w", "h.1.w", "h.5.w"], "h.0|1|5.w"),
        (["a.w", "b.c.w"], "a.w|b.c.w"),
    ],
)
def test_names(members, name):
    assert name_of(members) == name


def test_the_arrays_are_taken():
    """So that nothing is held twice."""
    arrays = {"a": jnp.zeros(2), "0.w": jnp.ones(3), "1.w": jnp.zeros(3)}
    found = stacked(arrays, [Group("*.w", ("0.w", "1.w"))])
    assert {k: x.shape for k, x in found.items()} == {"a": (2,), "*.w": (2, 3)}
    assert not arrays
