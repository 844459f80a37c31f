"""From one dtype to another."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.dtypes import canonical
from tojax.errors import Unsupported
from tojax.tensorflow.core import dtypes
from tojax.tensorflow.core.known import is_known
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.core.schema import lowers


@lowers("Cast")
def cast(x, DstT, Truncate):
    """Of complex numbers only the real part counts. Floats that an integer type does not have,
    which TensorFlow leaves undefined, become its nearest one, NaN 0.
    """
    if jnp.iscomplexobj(x) and not jnp.issubdtype(DstT, jnp.complexfloating):
        x = lax.real(x)
    if Truncate and jnp.issubdtype(DstT, jnp.floating) and jnp.issubdtype(x.dtype, jnp.floating):
        x = _shortened(x, jnp.finfo(x.dtype).nmant - jnp.finfo(DstT).nmant)
    return lax.convert_element_type(x, DstT)


def _shortened(x, bits: int):
    """Without the last bits of its mantissa: rounded towards zero."""
    if bits <= 0:
        return x
    whole = np.dtype(f"uint{8 * x.dtype.itemsize}")
    mask = whole.type(np.iinfo(whole).max << bits & np.iinfo(whole).max)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, whole) & mask, x.dtype)


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
