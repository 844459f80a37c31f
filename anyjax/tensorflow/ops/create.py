"""Arrays made of few numbers (constants, ranges, one-hot vectors), and casts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import canonical
from anyjax.errors import Unsupported
from anyjax.stablehlo.core.static_values import fixed, is_known, sizes
from anyjax.tensorflow.core import dtypes
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.core.schema import Static, lowers, table


@lowers("Fill")
def fill(dims: Static, value, /):
    return jnp.full(sizes(dims), value)


@lowers("Empty")
def empty(shape: Static, dtype, init):
    return jnp.zeros(sizes(shape), dtype)


table.update({"OnesLike": jnp.ones_like, "ZerosLike": jnp.zeros_like})


@lowers("Range")
def range_(start: Static, limit: Static, delta: Static, /):
    """Serves large ranges only: as constants they would be stored in the program."""
    if start.dtype.kind != "f":
        dtype = "int32" if start.dtype == object else canonical(start.dtype)
        return jnp.arange(start.item(), limit.item(), delta.item(), dtype)
    count = int(np.ceil(np.abs((float(limit) - float(start)) / float(delta))))
    dtype = canonical(start.dtype)
    return lax.iota(dtype, count) * dtype.type(delta) + dtype.type(start)


@lowers("LinSpace")
def linspace(start, stop, num: Static):
    """TensorFlow has no gradient for it."""
    start, stop, num = fixed(start), fixed(stop), int(num)
    if num == 1:
        return jnp.reshape(start, (1,))
    place = lax.iota(start.dtype, num)
    between = start + place * ((stop - start) / start.dtype.type(num - 1))
    return jnp.where(place == num - 1, stop, between)


@lowers("OneHot")
def one_hot(indices, depth: Static, on_value, off_value, axis):
    """Indices beyond the depth are off everywhere; TensorFlow has no gradient for the values."""
    wide = np.promote_types(indices.dtype, np.int32)
    indices = jnp.expand_dims(lax.convert_element_type(indices, wide), axis)
    axis %= indices.ndim
    shape = [depth.item() if n == axis else 1 for n in range(indices.ndim)]
    hot = indices == lax.broadcasted_iota(wide, shape, axis)
    return jnp.where(hot, fixed(on_value), fixed(off_value))


# Casts.


@lowers("Cast")
def cast(x, DstT, Truncate):
    """Complex numbers become their real part. Floats outside of an integer type's range, which
    TensorFlow leaves undefined, become its nearest integer; NaN becomes 0.
    """
    if jnp.iscomplexobj(x) and not jnp.issubdtype(DstT, jnp.complexfloating):
        x = lax.real(x)
    if Truncate and jnp.issubdtype(DstT, jnp.floating) and jnp.issubdtype(x.dtype, jnp.floating):
        x = _shortened(x, jnp.finfo(x.dtype).nmant - jnp.finfo(DstT).nmant)
    return lax.convert_element_type(x, DstT)


def _shortened(x, bits: int):
    """Clears the last ``bits`` of the mantissa: rounds towards zero."""
    if bits <= 0:
        return x
    unsigned = np.dtype(f"uint{8 * x.dtype.itemsize}")
    mask = unsigned.type(np.iinfo(unsigned).max << bits & np.iinfo(unsigned).max)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, unsigned) & mask, x.dtype)


@handles("Bitcast")
def bitcast(run, node, inputs):
    """A last axis appears or vanishes where the widths differ."""
    old, new = (dtypes.to_numpy(node.proto.attr[name].type) for name in ("T", "type"))
    (x,) = inputs
    if is_known(x):
        ratio = old.itemsize // new.itemsize
        x = np.asarray(x[..., None] if ratio > 1 else x, order="C").view(new)
        return (x[..., 0] if old.itemsize < new.itemsize else x,)
    if "c" in (old.kind, new.kind) or any(canonical(t) != t for t in (old, new)):
        raise Unsupported(
            f"Bitcast from {old} to {new}",
            why="JAX has no bits of complex numbers, and none of 64-bit numbers unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first, or use real numbers',
        )
    return (lax.bitcast_convert_type(x, new),)


@lowers("ToBool")
def to_bool(input):
    """An array is true where it is not empty."""
    return input != 0 if input.ndim == 0 else np.asarray(input.size > 0)
