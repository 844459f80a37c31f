"""Functions whose derivative is TensorFlow's, where JAX has another one or none."""

from __future__ import annotations

from collections.abc import Callable

import jax


def partials(*along: Callable | None) -> Callable[[Callable], Callable]:
    """Decorates a function with its partial derivatives by each argument: functions of the result
    and the arguments, or None for 0.
    """
    rule = lambda partial: partial and (lambda t, out, *args: t * partial(out, *args))

    def decorate(function):
        differentiable = jax.custom_jvp(function)
        differentiable.defjvps(*map(rule, along))
        return differentiable

    return decorate
