"""Dimensions that stay whole on every device of a mesh, for operators that XLA divides wrongly."""

from __future__ import annotations

from collections.abc import Collection

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec


def mesh_of(*arrays: jax.Array) -> AbstractMesh | None:
    """Returns the mesh over which XLA may divide arrays, None where there is one device.

    Example:
      >>> mesh_of(jax.numpy.ones(3)) is None
      True
    """
    for array in arrays:
        mesh = jax.typeof(array).sharding.mesh
        if mesh.size > 1 and AxisType.Auto in mesh.axis_types:
            return mesh
    return None


def undivided(array: jax.Array, dims: Collection[int], mesh: AbstractMesh) -> jax.Array:
    """Has every device hold these dimensions as a whole; the others stay as XLA divides them."""
    spec = (None if i in dims else PartitionSpec.UNCONSTRAINED for i in range(array.ndim))
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec(*spec)))
