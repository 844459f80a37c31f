"""Reductions over axes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.stablehlo.core.monoid import identity, monoid
from tojax.stablehlo.core.schema import lowers
from tojax.stablehlo.core.static_values import is_known


@lowers("stablehlo.reduce")
def reduce(result, inputs, init_values, dimensions, body):
    inputs, init_values = promoted(body, inputs, init_values)
    single = monoid(body.region) if len(inputs) == 1 else None
    if single is None:
        return general(body, inputs, init_values, dimensions)
    start = identity(single, inputs[0].dtype)
    out = lax.reduce(inputs[0], start, single, dimensions)
    return joined(single, out, init_values[0], start)


def promoted(body, inputs, init_values):
    """In the dtypes that the body computes in, which may be wider ones."""
    dtypes = [kind.dtype for kind in body.region.types[: len(inputs)]]
    wide = lambda xs: [
        x if x.dtype == dtype else lax.convert_element_type(x, dtype)
        for x, dtype in zip(xs, dtypes)
    ]
    return wide(inputs), wide(init_values)


def joined(operation, out, init, start):
    """With the value to start from, where it is not the operation's identity anyway."""
    if is_known(init) and np.array_equal(init, start):
        return out
    return operation(out, lax.broadcast(init, out.shape))


def general(body, inputs, init_values, dimensions):
    """JAX's reduction by any function, which has no derivative; that of the same function applied
    to halves of the axes takes its place.
    """
    whole = lambda xs: lax.reduce(tuple(xs), tuple(init_values), pairwise(body), dimensions)
    if not all(isinstance(n, int) for x in inputs for n in x.shape):
        return whole(inputs)
    return differentiable(whole, lambda xs: halved(body, xs, init_values, dimensions), inputs)


def differentiable(fast, slow, inputs):
    """``fast`` with the derivative of ``slow``."""
    if not any(jnp.issubdtype(x.dtype, jnp.inexact) for x in inputs):
        return fast(inputs)
    function = jax.custom_jvp(lambda *xs: tuple(fast(xs)))
    function.defjvp(
        lambda primals, tangents: jax.jvp(lambda *xs: tuple(slow(xs)), primals, tangents)
    )
    return function(*inputs)


def pairwise(body):
    return lambda xs, ys: tuple(jnp.asarray(x) for x in body(*xs, *ys))


def elementwise(body):
    """A body of scalars as a function of arrays of one shape."""

    def combine(*arrays):
        flat = [x.reshape(-1) for x in arrays]
        out = jax.vmap(lambda *xs: [jnp.asarray(x) for x in body(*xs)])(*flat)
        return [x.reshape(arrays[0].shape) for x in out]

    return combine


def halved(body, inputs, init_values, dimensions):
    """Halves of the axes, combined until one element is left."""
    combine = elementwise(body)
    kept = [i for i in range(inputs[0].ndim) if i not in dimensions]
    shape = [inputs[0].shape[i] for i in kept]
    rows = [lax.transpose(x, [*dimensions, *kept]).reshape(-1, *shape) for x in inputs]
    out = [jnp.full(shape, x) for x in init_values]
    while rows[0].shape[0]:
        half = rows[0].shape[0] // 2
        if rows[0].shape[0] % 2:
            out = combine(*out, *(x[-1] for x in rows))
        pairs = [x[: 2 * half].reshape(half, 2, *shape) for x in rows]
        rows = combine(*(x[:, 0] for x in pairs), *(x[:, 1] for x in pairs)) if half else pairs
    return out
