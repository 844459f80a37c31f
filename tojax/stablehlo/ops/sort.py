"""Sorting: which order a comparator means is found by asking it."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.stablehlo.core.schema import lowers
from tojax.stablehlo.ops.elementwise import ordered


@lowers("stablehlo.sort")
def sort(result, inputs, dimension, is_stable, comparator):
    axis = dimension if dimension >= 0 else dimension + inputs[0].ndim
    order = order_of(comparator, [x.dtype for x in inputs])
    if order is None:
        return by_rank(comparator, inputs, axis)
    if not any(descending or total for _, descending, total in order):
        keys = [k for k, *_ in order]
        placed = [*keys, *(i for i in range(len(inputs)) if i not in keys)]
        out = lax.sort([inputs[i] for i in placed], axis, is_stable, len(keys))
        return [out[placed.index(i)] for i in range(len(inputs))]
    keyed = [key_of(inputs[k], *how) for k, *how in order]
    return lax.sort([*keyed, *inputs], axis, is_stable, len(keyed))[len(keyed) :]


def key_of(x, descending, total):
    """Integers in the order of some numbers; of floats all zeros are equal, and all that are none,
    unless their bits count.
    """
    if not total and jnp.issubdtype(x.dtype, jnp.floating):
        x = jnp.where(
            x == 0, jnp.zeros_like(x), jnp.where(jnp.isnan(x), jnp.full_like(x, jnp.nan), x)
        )
    return ~ordered(x) if descending else ordered(x)


def order_of(comparator, dtypes):
    """The operands that are compared, from the first to the last, each with whether its largest
    comes first and whether it is by the bits of floats; None if it is no such order.
    """
    rng = np.random.default_rng(0)
    said = _asked(comparator, [_samples(dtype, rng) for dtype in dtypes])
    found = _keys(said, dtypes)
    if found is None or any(down and dtypes[k].kind == "c" for k, down in found):
        return None
    return [(k, down, _by_bits(comparator, dtypes, k, down)) for k, down in found]


def _asked(comparator, pairs):
    with jax.ensure_compile_time_eval():
        (said,) = jax.vmap(comparator)(*(side for pair in pairs for side in pair))
        return np.asarray(said)


def _keys(said, dtypes):
    rng = np.random.default_rng(0)
    samples = [_samples(dtype, rng) for dtype in dtypes]
    for count in range(1, min(len(dtypes), 3) + 1):
        for keys in itertools.permutations(range(len(dtypes)), count):
            for signs in itertools.product((False, True), repeat=count):
                if np.array_equal(said, _before([samples[k] for k in keys], signs)):
                    return list(zip(keys, signs))
    return None


def _by_bits(comparator, dtypes, key, descending):
    """Whether 0 comes after -0 and what is no number at the ends."""
    if not jnp.issubdtype(dtypes[key], jnp.floating):
        return False
    odd = np.array([-np.nan, -0.0, 0.0, np.nan]).astype(dtypes[key])
    left, right = np.repeat(odd, 4), np.tile(odd, 4)
    same = lambda dtype: (np.zeros(16, dtype),) * 2
    said = _asked(
        comparator, [(left, right) if i == key else same(d) for i, d in enumerate(dtypes)]
    )
    with jax.ensure_compile_time_eval():
        sides = (right, left) if descending else (left, right)
        return np.array_equal(said, np.asarray(ordered(sides[0]) < ordered(sides[1])))


def _samples(dtype, rng):
    """Pairs of numbers, a fifth of them equal."""
    left, right = rng.integers(-2, 3, (2, 400))
    return left.astype(dtype), right.astype(dtype)


def _before(pairs, descending):
    """Whether the left side comes first."""
    out = np.zeros(400, bool)
    for (left, right), down in reversed([*zip(pairs, descending)]):
        out = ((left > right) if down else (left < right)) | ((left == right) & out)
    return out


def by_rank(comparator, inputs, axis):
    """By a comparator of its own: before an element come all that it puts there, and equals that
    stood there. As many comparisons as there are pairs, a row of them at a time.
    """
    rows = [jnp.moveaxis(x, axis, -1) for x in inputs]
    n = rows[0].shape[-1]
    flat = [lax.stop_gradient(x.reshape(-1, n)) for x in rows]
    ask = lambda xs, ys: comparator(*(side for pair in zip(xs, ys) for side in pair))[0]
    pairwise = jax.vmap(jax.vmap(ask, (0, None)), (None, 0))  # [i, j]: j before i

    def ranks(row):
        before = pairwise(row, row)
        equal = ~before & ~before.T & jnp.tril(jnp.ones((n, n), bool), -1)
        return jnp.sum(before | equal, 1)

    places = jnp.argsort(lax.map(ranks, tuple(flat)), -1).reshape(rows[0].shape)
    return [jnp.moveaxis(jnp.take_along_axis(x, places, -1), -1, axis) for x in rows]
