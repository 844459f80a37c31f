"""Optional values: results of one branch alone, which the gradient of a branch needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import as_jax, is_known
from anyjax.tensorflow.core.running import handles


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Optional:
    """An optional value: ``values`` is None if no branch has any, zeros where ``has`` is false."""

    values: list[Any] | None
    has: Any


def shape_of(outputs: Sequence[object]) -> Optional | None:
    """Returns the first optional value of the branches that has values."""
    with_values = (x for x in outputs if isinstance(x, Optional) and x.values is not None)
    return next(with_values, None)


def filled(value: Any, like: Optional | None) -> Any:
    """Gives a missing value the shape of another branch's value."""
    if like is None or value.values is not None:
        return value
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like.values)
    return Optional(zeros, value.has)


@handles("OptionalFromValue")
def from_value(run, node, inputs):
    return (Optional([jax.tree.map(as_jax, x) for x in inputs], np.asarray(True)),)


@handles("OptionalNone")
def none(run, node, inputs):
    return (Optional(None, np.asarray(False)),)


@handles("OptionalHasValue")
def has_value(run, node, inputs):
    return (inputs[0].has,)


@handles("OptionalGetValue")
def get_value(run, node, inputs):
    """TensorFlow raises where there is none; a gradient never reads it then."""
    value = inputs[0]
    if value.values is None or (is_known(value.has) and not value.has):
        raise Unsupported(
            "an optional value is read that is not there",
            why="no branch computes it",
            do="ask whether it has a value first",
        )
    return tuple(value.values)
