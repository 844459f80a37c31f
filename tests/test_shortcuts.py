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
            with shortcuts.noting():
                seen.append(shortcuts.of(x))
        seen.append(shortcuts.of(x))
        return x

    jax.jit(program)(jnp.ones(2))
    assert seen == [None, "short", None, None]
    with shortcuts.noting():
        shortcuts.note(x := jnp.ones(2), "array")
        assert shortcuts.of(x) is None
