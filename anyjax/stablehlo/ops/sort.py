"""Sorting: the order of a comparator is found by its answers for sample values."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.ops.elementwise import ordered


@lowers("stablehlo.sort")
def sort(result, inputs, dimension, is_stable, comparator):
    axis = dimension if dimension >= 0 else dimension + inputs[0].ndim
    order = order_of(comparator, [x.dtype for x in inputs])
    if order is None:
        return by_rank(comparator, inputs, axis)
    if not any(descending or total for _, descending, total in order):
        keys = [k for k, *_ in order]
        by_key = [*keys, *(i for i in range(len(inputs)) if i not in keys)]
        out = lax.sort([inputs[i] for i in by_key], axis, is_stable, len(keys))
        return [out[by_key.index(i)] for i in range(len(inputs))]
    keyed = [key_of(inputs[k], *how) for k, *how in order]
    return lax.sort([*keyed, *inputs], axis, is_stable, len(keyed))[len(keyed) :]


def key_of(x, descending, total):
    """Returns integers in the order of numbers; all zeros are equal, and all NaN, unless the order
    is total.
    """
    if not total and jnp.issubdtype(x.dtype, jnp.floating):
        x = jnp.where(
            x == 0, jnp.zeros_like(x), jnp.where(jnp.isnan(x), jnp.full_like(x, jnp.nan), x)
        )
    return ~ordered(x) if descending else ordered(x)


def order_of(comparator, dtypes):
    """Returns the compared operands in order, each with whether it is descending and whether it is
    in the total order of floats; None if the comparator is no such order.
    """
    rng = np.random.default_rng(0)
    answers = _answers(comparator, [_samples(dtype, rng) for dtype in dtypes])
    keys = _keys(answers, dtypes)
    if keys is None or any(down and dtypes[k].kind == "c" for k, down in keys):
        return None
    return [(k, down, _is_total(comparator, dtypes, k, down)) for k, down in keys]


def _answers(comparator, pairs):
    with jax.ensure_compile_time_eval():
        (answers,) = jax.vmap(comparator)(*(side for pair in pairs for side in pair))
        return np.asarray(answers)


def _keys(answers, dtypes):
    """Searches for the operands and directions that give these answers."""
    rng = np.random.default_rng(0)
    samples = [_samples(dtype, rng) for dtype in dtypes]
    for count in range(1, min(len(dtypes), 3) + 1):
        for keys in itertools.permutations(range(len(dtypes)), count):
            for signs in itertools.product((False, True), repeat=count):
                if np.array_equal(answers, _less([samples[k] for k in keys], signs)):
                    return list(zip(keys, signs))
    return None


def _is_total(comparator, dtypes, key, descending):
    """Returns whether 0 comes after -0, and NaN at the ends."""
    if not jnp.issubdtype(dtypes[key], jnp.floating):
        return False
    odd = np.array([-np.nan, -0.0, 0.0, np.nan]).astype(dtypes[key])
    xs, ys = np.repeat(odd, 4), np.tile(odd, 4)
    equal = lambda dtype: (np.zeros(16, dtype),) * 2
    pairs = [(xs, ys) if i == key else equal(d) for i, d in enumerate(dtypes)]
    answers = _answers(comparator, pairs)
    with jax.ensure_compile_time_eval():
        sides = (ys, xs) if descending else (xs, ys)
        return np.array_equal(answers, np.asarray(ordered(sides[0]) < ordered(sides[1])))


def _samples(dtype, rng):
    """Draws pairs of numbers, a fifth of them equal."""
    xs, ys = rng.integers(-2, 3, (2, 400))
    return xs.astype(dtype), ys.astype(dtype)


def _less(pairs, descending):
    """Returns whether the first element of each pair comes first."""
    less = np.zeros(400, bool)
    for (xs, ys), down in reversed([*zip(pairs, descending)]):
        less = ((xs > ys) if down else (xs < ys)) | ((xs == ys) & less)
    return less


def by_rank(comparator, inputs, axis):
    """Sorts by any comparator: the rank of an element counts the smaller ones, and the equal ones
    before it. All pairs are compared, a row at a time.
    """
    rows = [jnp.moveaxis(x, axis, -1) for x in inputs]
    n = rows[0].shape[-1]
    flat = [lax.stop_gradient(x.reshape(-1, n)) for x in rows]
    ask = lambda xs, ys: comparator(*(side for pair in zip(xs, ys) for side in pair))[0]
    pairwise = jax.vmap(jax.vmap(ask, (0, None)), (None, 0))  # [i, j]: j is less than i

    def ranks(row):
        less = pairwise(row, row)
        equal = ~less & ~less.T & jnp.tril(jnp.ones((n, n), bool), -1)
        return jnp.sum(less | equal, 1)

    places = jnp.argsort(lax.map(ranks, tuple(flat)), -1).reshape(rows[0].shape)
    return [jnp.moveaxis(jnp.take_along_axis(x, places, -1), -1, axis) for x in rows]
