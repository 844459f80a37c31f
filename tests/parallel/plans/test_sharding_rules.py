"""Factors of operations; test_same_dims.py and test_partition.py have programs."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from anyjax.parallel.plans.sharding_rules import groups_of, sharding_rule


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        ((6,), (2, 3), [([0], [0, 1])]),
        ((2, 1, 3), (2, 3), [([0], [0]), ([1, 2], [1])]),
        ((8, 0, 4), (0, 4), []),
    ],
)
def test_groups(before, after, want):
    assert groups_of(before, after) == want


RULES = {
    "product": (lambda x, w: x @ w, [(2, 4), (4, 8)], [[0, "sum 0"], ["sum 0", 1]], [[0, 1]]),
    "sum": (lambda x: x.sum(0), [(2, 4)], [[0, 1]], [[1]]),
    "running sum": (lambda x: lax.cumsum(x, 0), [(2, 4)], [[None, 1]], [[None, 1]]),
    "largest": (lambda x: lax.top_k(x, 2), [(3, 4)], [[0, None]], [[0, None]] * 2),
    "broadcast": (lambda x: jnp.broadcast_to(x, (3, 2, 4)), [(2, 1)], [[1, None]], [[0, 1, 2]]),
    "split": (lambda x: x.reshape(2, 3, 4), [(6, 4)], [[0, 1]], [[0, None, 1]]),
    "reversed": (lambda x: lax.rev(x, (0,)), [(6, 4)], [[0, 1]], [[0, 1]]),
}


@pytest.mark.parametrize("name", RULES)
def test_factors(name):
    function, shapes, operands, results = RULES[name]
    arrays = [jax.ShapeDtypeStruct(x, jnp.float32) for x in shapes]
    eqn = jax.make_jaxpr(function)(*arrays).eqns[-1]
    shapes = [[v.aval.shape for v in vs] for vs in (eqn.invars, eqn.outvars)]
    rule = sharding_rule(eqn.primitive.name, eqn.params, *shapes)
    assert rule.is_known and (rule.operands, rule.results) == (operands, results)


def test_pieces_are_permuted():
    """Along the axis that is cut; of two axes, neither is sharded."""
    cut = lambda starts: sharding_rule(
        "slice", {"strides": None}, [(4, 4)], [tuple(4 - n for n in starts)]
    )
    assert cut((0, 2)).permuted == 1 and cut((0, 2)).results == [[0, 1]]
    assert cut((1, 2)).permuted is None and cut((1, 2)).operands == [[None, None]]
