"""Writing to positions; positions that an array does not have are passed over.

Where several values are assigned to one place, which one stays is undefined in TensorFlow as well.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.schema import Static, lowers, table

OPTIONS = {"mode": "drop", "wrap_negative_indices": False}


def assign(x, at, values):
    return x.at[at].set(values, **OPTIONS)


def add(x, at, values):
    if x.dtype == bool:
        return x.at[at].max(values, **OPTIONS)
    return x.at[at].add(values, **OPTIONS)


def subtract(x, at, values):
    return x.at[at].subtract(values, **OPTIONS)


@jax.custom_jvp
def multiply(x, at, values):
    """JAX has no derivative where places repeat."""
    return x.at[at].multiply(values, **OPTIONS)


@multiply.defjvp
def multiply_jvp(primals, tangents):
    """The derivative by a factor is the product of the others, right with zeros among them."""
    (x, at, values), (dx, _, dvalues) = primals, tangents
    none_x, none = x == 0, values == 0
    zeros = add(none_x.astype("int32"), at, none.astype("int32"))
    ones = lambda x, none: jnp.where(none, 1, x)
    rest = ones(x, none_x).at[at].multiply(ones(values, none), **OPTIONS)
    others = lambda x, none, zeros, rest: jnp.where(zeros == none, rest / ones(x, none), 0)
    tangent = dx * others(x, none_x, zeros, rest)
    tangent = add(tangent, at, dvalues * others(values, none, zeros[at], rest[at]))
    return multiply(x, at, values), tangent


def divide(x, at, values):
    """One after another: integers are truncated each time."""
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return multiply(x, at, 1 / values)
    return x.at[at].divide(values, **OPTIONS)


def _extreme(name: str):
    @jax.custom_jvp
    def function(x, at, values):
        return getattr(x.at[at], name)(values, **OPTIONS)

    @function.defjvp
    def jvp(primals, tangents):
        """All that are equal to the result share the gradient."""
        (x, at, values), (dx, _, dvalues) = primals, tangents
        out = function(x, at, values)
        hit_x, hit = (x == out).astype(x.dtype), (values == out[at]).astype(x.dtype)
        count = add(hit_x, at, hit)
        total = add(dx * hit_x, at, dvalues * hit)
        return out, total / jnp.where(count == 0, 1, count)

    return function


highest, lowest = _extreme("max"), _extreme("min")


def nd(write):
    """A lowering's body: ``write`` where the last axis of the indices says."""

    def lowering(tensor, indices, updates, bad_indices_policy, /):
        at = tuple(indices[..., i] for i in range(indices.shape[-1]))
        return write(tensor, at, updates)

    return lowering


table.update(
    {
        "TensorScatterUpdate": nd(assign),
        "TensorScatterAdd": nd(add),
        "TensorScatterSub": nd(subtract),
        "TensorScatterMax": nd(highest),
        "TensorScatterMin": nd(lowest),
        "ScatterNdNonAliasingAdd": nd(add),
        "InplaceUpdate": lambda x, i, v: assign(x, i % x.shape[0], v),
        "InplaceAdd": lambda x, i, v: add(x, i % x.shape[0], v),
        "InplaceSub": lambda x, i, v: subtract(x, i % x.shape[0], v),
    }
)


@lowers("ScatterNd")
def scatter_nd(indices, updates, shape: Static, bad_indices_policy):
    zeros = lax.full(sizes(shape), 0, updates.dtype)
    return nd(add)(zeros, indices, updates, bad_indices_policy)
