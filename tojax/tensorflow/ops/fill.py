"""Arrays made of few numbers: constants, ranges, one-hot vectors."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.dtypes import canonical
from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.schema import Static, lowers


@lowers("Fill")
def fill(dims: Static, value, /):
    return jnp.full(sizes(dims), value)


@lowers("Empty")
def empty(shape: Static, dtype, init):
    return jnp.zeros(sizes(shape), dtype)


@lowers("Range")
def range_(start: Static, limit: Static, delta: Static, /):
    """Only large ones come here; a constant of their size would be stored in the program."""
    if start.dtype.kind != "f":
        dtype = "int32" if start.dtype == object else canonical(start.dtype)
        return jnp.arange(start.item(), limit.item(), delta.item(), dtype)
    count = int(np.ceil(np.abs((float(limit) - float(start)) / float(delta))))
    dtype = canonical(start.dtype)
    return lax.iota(dtype, count) * dtype.type(delta) + dtype.type(start)


@lowers("LinSpace")
def linspace(start, stop, num: Static):
    """TensorFlow has no gradient for it."""
    start, stop, num = lax.stop_gradient(start), lax.stop_gradient(stop), int(num)
    if num == 1:
        return jnp.reshape(start, (1,))
    place = lax.iota(start.dtype, num)
    between = start + place * ((stop - start) / start.dtype.type(num - 1))
    return jnp.where(place == num - 1, stop, between)


@lowers("OneHot")
def one_hot(indices, depth: Static, on_value, off_value, axis):
    """What lies outside of the depth is nowhere on; TensorFlow has no gradient for the values."""
    indices = jnp.expand_dims(lax.convert_element_type(indices, "int32"), axis)
    axis %= indices.ndim
    shape = [depth.item() if n == axis else 1 for n in range(indices.ndim)]
    here = indices == lax.broadcasted_iota("int32", shape, axis)
    return jnp.where(here, lax.stop_gradient(on_value), lax.stop_gradient(off_value))
