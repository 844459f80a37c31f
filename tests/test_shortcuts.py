"""Shortcuts are known for values of programs, while a wrapped source is called."""

import jax
import jax.numpy as jnp

from tojax import shortcuts


def test_only_values_of_programs_and_only_inside():
    seen = []

    def program(x):
        shortcuts.note(x, "early")
        seen.append(shortcuts.of(x))
        with shortcuts.noting():
            shortcuts.note(x, "short")
            seen.append(shortcuts.of(x))
            with shortcuts.noting():  # a source around another one: what it noted is known inside
                seen.append(shortcuts.of(x))
                shortcuts.note(y := x + 1, "inner")
            seen.append(shortcuts.of(y))
        seen.append(shortcuts.of(x))
        return x

    jax.jit(program)(jnp.ones(2))
    assert seen == [None, "short", "short", None, None]
    with shortcuts.noting():
        shortcuts.note(x := jnp.ones(2), "array")
        assert shortcuts.of(x) is None
