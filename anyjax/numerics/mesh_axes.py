"""The use of each axis of a mesh, by its name."""

from __future__ import annotations

from jax.sharding import AbstractMesh, Mesh

NAMES = {
    "tp": ("model", "tp", "tensor", "tensor_parallel", "mp", "heads"),
    "fsdp": ("fsdp", "data", "dp", "batch", "replica"),
    "expert": ("expert", "ep"),
    "sequence": ("sequence", "seq", "sp", "context", "cp"),
}


def batch_axes(mesh: Mesh | AbstractMesh) -> tuple[str, ...]:
    """Returns the axes that divide rows of a batch."""
    return tuple(name for name in mesh.axis_names if name in NAMES["fsdp"])
