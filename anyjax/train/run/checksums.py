"""Checksums of a state, which its checkpoint holds: Orbax's files have none for arrays.

They are computed where the arrays are, and are the same on every mesh.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from anyjax.multiprocess import values
from anyjax.typing import PyTree


def of_arrays(state: PyTree) -> dict[str, int]:
    """Returns a checksum of every leaf by its path. Any change of a single number changes it.

    Example:
      >>> of_arrays({"a": jnp.arange(3), "b": jnp.float32(0)})
      {"['a']": 13, "['b']": 0}
    """
    leaves = jax.tree_util.tree_leaves_with_path(state)
    sums = {jax.tree_util.keystr(path): _sum(leaf) for path, leaf in leaves}  # all are started
    return {path: int(values(x)) for path, x in sums.items()}


def _sum(x: jax.Array) -> jax.Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    mesh = getattr(x.sharding, "mesh", None)
    if mesh is not None and AxisType.Explicit in mesh.axis_types:
        with jax.set_mesh(mesh):
            return jax.jit(jax.sharding.auto_axes(weighted, out_sharding=jax.P()))(x)
    return _compiled(x)


def weighted(x: jax.Array) -> jax.Array:
    """Returns the sum, modulo 2**32, of the words of an array times odd numbers by position."""
    words = _words(x)
    position = jnp.zeros((), jnp.uint32)
    for axis, size in enumerate(words.shape):
        places = jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
        position = position * jnp.uint32(size % 2**32) + places
    return jnp.sum(words * (2 * position + 1), dtype=jnp.uint32)


_compiled = jax.jit(weighted)


def _words(x: jax.Array) -> jax.Array:
    """Returns the bits of an array as uint32, in its shape or with one more axis."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([x.real, x.imag], -1)
    if jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits < 8:
        x = x.astype(jnp.float32)
    elif x.dtype == bool or (jnp.issubdtype(x.dtype, jnp.integer) and jnp.iinfo(x.dtype).bits < 8):
        x = x.astype(jnp.int32)
    if x.dtype.itemsize == 8:
        return jax.lax.bitcast_convert_type(x, jnp.uint32)
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    return jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)
