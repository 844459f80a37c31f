"""Reductions over axes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import is_float
from anyjax.stablehlo.core.monoid import identity, monoid
from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.core.static_values import is_known


@lowers("stablehlo.reduce")
def reduce(result, inputs, init_values, dimensions, body):
    inputs, init_values = promote(body, inputs, init_values)
    single = monoid(body.region) if len(inputs) == 1 else None
    if single is None:
        return reduce_any(body, inputs, init_values, dimensions)
    start = identity(single, inputs[0].dtype)
    out = lax.reduce(inputs[0], start, single, dimensions)
    return with_initial(single, out, init_values[0], start)


def promote(body, inputs, init_values):
    """Converts to the dtypes of the body, which may be wider; integers that are checked in floats
    stay floats.
    """
    dtypes = [kind.dtype for kind in body.region.types[: len(inputs)]]
    fits = lambda x, dtype: x.dtype == dtype or is_float(x.dtype) > is_float(dtype)
    wide = lambda xs: [
        x if fits(x, dtype) else lax.convert_element_type(x, dtype) for x, dtype in zip(xs, dtypes)
    ]
    return wide(inputs), wide(init_values)


def with_initial(operation, out, init, start):
    """Includes the initial value, unless it is the operation's identity."""
    if is_known(init) and np.array_equal(init, start):
        return out
    return operation(out, lax.broadcast(init, out.shape))


def reduce_any(body, inputs, init_values, dimensions):
    """Reduces by any function. JAX's reduction has no derivative, so that of a reduction by halves
    takes its place.
    """
    direct = lambda xs: lax.reduce(tuple(xs), tuple(init_values), pairwise(body), dimensions)
    if not all(isinstance(n, int) for x in inputs for n in x.shape):
        return direct(inputs)
    return differentiable(
        direct, lambda xs: reduce_by_halves(body, xs, init_values, dimensions), inputs
    )


def differentiable(fast, slow, inputs):
    """Computes by ``fast``, differentiated as ``slow``."""
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
    """Makes a body of scalars a function of arrays of one shape."""

    def combine(*arrays):
        flat = [x.reshape(-1) for x in arrays]
        out = jax.vmap(lambda *xs: [jnp.asarray(x) for x in body(*xs)])(*flat)
        return [x.reshape(arrays[0].shape) for x in out]

    return combine


def reduce_by_halves(body, inputs, init_values, dimensions):
    """Reduces the axes by combining their halves until one element remains."""
    combine = elementwise(body)
    batch_axes = [i for i in range(inputs[0].ndim) if i not in dimensions]
    shape = [inputs[0].shape[i] for i in batch_axes]
    rows = [lax.transpose(x, [*dimensions, *batch_axes]).reshape(-1, *shape) for x in inputs]
    out = [jnp.full(shape, x) for x in init_values]
    while rows[0].shape[0]:
        half = rows[0].shape[0] // 2
        if rows[0].shape[0] % 2:
            out = combine(*out, *(x[-1] for x in rows))
        pairs = [x[: 2 * half].reshape(half, 2, *shape) for x in rows]
        rows = combine(*(x[:, 0] for x in pairs), *(x[:, 1] for x in pairs)) if half else pairs
    return out
