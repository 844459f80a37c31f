"""Sorting: which order a comparator means is found by asking it."""

from __future__ import annotations

import itertools

import jax
import numpy as np
from jax import lax

from tojax.errors import Unsupported
from tojax.stablehlo.core.schema import lowers
from tojax.stablehlo.ops.elementwise import ordered


@lowers("stablehlo.sort")
def sort(result, inputs, dimension, is_stable, comparator):
    axis = dimension if dimension >= 0 else dimension + inputs[0].ndim
    keys, descending = order_of(comparator, [x.dtype for x in inputs])
    if descending:
        keyed = [~ordered(inputs[k]) for k in keys]
        return lax.sort((*keyed, *inputs), axis, is_stable, len(keyed))[len(keyed) :]
    others = [i for i in range(len(inputs)) if i not in keys]
    placed = [*keys, *others]
    out = lax.sort([inputs[i] for i in placed], axis, is_stable, len(keys))
    return [out[placed.index(i)] for i in range(len(inputs))]


def order_of(comparator, dtypes) -> tuple[tuple[int, ...], bool]:
    """(the operands that are compared, from the first to the last; whether largest first).

    Raises:
      Unsupported: the comparator sorts in no such order.
    """
    rng = np.random.default_rng(0)
    samples = [_samples(dtype, rng) for dtype in dtypes]
    arguments = [side for pair in samples for side in pair]
    with jax.ensure_compile_time_eval():
        (said,) = jax.vmap(comparator)(*arguments)
    for count in range(1, len(dtypes) + 1):
        for keys in itertools.permutations(range(len(dtypes)), count):
            before = _before([samples[k] for k in keys])
            for descending, expected in ((False, before[0]), (True, before[1])):
                if np.array_equal(said, expected):
                    return keys, descending
        if count == 2:
            break
    raise Unsupported(
        "a sort with a comparator of its own",
        why="it is not the order of some operands, smallest or largest first",
        do="sort by a key",
    )


def _samples(dtype, rng):
    """Pairs of numbers, a third of them equal."""
    left, right = rng.integers(0, 3, (2, 200))
    return left.astype(dtype), right.astype(dtype)


def _before(pairs):
    """Whether the left side comes first, smallest and largest first."""
    up = np.zeros(200, bool)
    down = np.zeros(200, bool)
    for left, right in reversed(pairs):
        up = (left < right) | ((left == right) & up)
        down = (left > right) | ((left == right) & down)
    return up, down
