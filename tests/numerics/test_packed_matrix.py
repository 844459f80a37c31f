"""Shortcuts are known for values of programs, while a wrapped source is called."""

import jax
import jax.numpy as jnp

from anyjax.numerics import packed_matrix


def test_only_values_of_programs_and_only_inside():
    seen = []

    def program(x):
        packed_matrix.register(x, "early")
        seen.append(packed_matrix.packed_form(x))
        with packed_matrix.registering():
            packed_matrix.register(x, "short")
            seen.append(packed_matrix.packed_form(x))
            with (
                packed_matrix.registering()
            ):  # a source around another one: what it noted is known inside
                seen.append(packed_matrix.packed_form(x))
                packed_matrix.register(y := x + 1, "inner")
            seen.append(packed_matrix.packed_form(y))
        seen.append(packed_matrix.packed_form(x))
        return x

    jax.jit(program)(jnp.ones(2))
    assert seen == [None, "short", "short", None, None]
    with packed_matrix.registering():
        packed_matrix.register(x := jnp.ones(2), "array")
        assert packed_matrix.packed_form(x) is None
