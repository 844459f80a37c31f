"""Search by halving."""

import jax
import numpy as np

from anyjax.numerics.bisection import bisect

SIDES = {"left": lambda x, v: x < v, "right": lambda x, v: x <= v}


def test_sequences_of_any_length():
    rng = np.random.default_rng(0)
    for count in (0, 1, 2, 3, 7, 8, 9, 100):
        sequence, values = np.sort(rng.integers(0, 20, count)), np.arange(-1, 22)
        for side, before in SIDES.items():
            got = jax.jit(lambda s, v, before=before: bisect(s, v, before))(sequence, values)
            np.testing.assert_array_equal(got, np.searchsorted(sequence, values, side))


def test_rows_and_vmap():
    rng = np.random.default_rng(1)
    rows, values = np.sort(rng.integers(0, 9, (3, 12))), rng.integers(0, 9, (3, 5))
    find = lambda x, v: bisect(x, v, SIDES["left"])
    want = [np.searchsorted(*pair) for pair in zip(rows, values)]
    np.testing.assert_array_equal(find(rows, values), want)
    np.testing.assert_array_equal(jax.vmap(find)(rows, values), want)
    np.testing.assert_array_equal(jax.vmap(find, (0, None))(rows, values[0])[0], want[0])


def test_sequences_of_a_symbolic_length():
    n, m = jax.export.symbolic_shape("n, m")
    shapes = [jax.ShapeDtypeStruct((size,), np.int32) for size in (n, m)]
    find = jax.jit(lambda x, v: bisect(x, v, SIDES["right"]))
    exported = jax.export.export(find)(*shapes)
    for count in (1, 5, 64):
        sequence, values = np.arange(count, dtype=np.int32), np.arange(-1, 70, dtype=np.int32)
        want = np.searchsorted(sequence, values, "right")
        np.testing.assert_array_equal(exported.call(sequence, values), want)
