"""Shortcuts are known for values of programs, while a wrapped source is called."""

import jax
import jax.numpy as jnp

from tojax.numerics import packed_matrix


def test_only_values_of_programs_and_only_inside():
    seen = []

    def program(x):
        packed_matrix.note(x, "early")
        seen.append(packed_matrix.of(x))
        with packed_matrix.noting():
            packed_matrix.note(x, "short")
            seen.append(packed_matrix.of(x))
            with (
                packed_matrix.noting()
            ):  # a source around another one: what it noted is known inside
                seen.append(packed_matrix.of(x))
                packed_matrix.note(y := x + 1, "inner")
            seen.append(packed_matrix.of(y))
        seen.append(packed_matrix.of(x))
        return x

    jax.jit(program)(jnp.ones(2))
    assert seen == [None, "short", "short", None, None]
    with packed_matrix.noting():
        packed_matrix.note(x := jnp.ones(2), "array")
        assert packed_matrix.of(x) is None
