"""The use of each axis of a mesh, by its name."""

from __future__ import annotations

import jax
from jax.sharding import AbstractMesh, Mesh

from anyjax.errors import WrongArguments
from anyjax.numerics.mesh_axes import NAMES


def current_mesh(mesh: Mesh | None) -> Mesh:
    """Returns this mesh, or that of ``jax.set_mesh``.

    Raises:
      WrongArguments: there is none, or it has no devices.
    """
    mesh = jax.sharding.get_mesh() if mesh is None else mesh
    if not isinstance(mesh, Mesh) or mesh.empty:
        raise WrongArguments(
            "a plan needs a mesh of devices",
            where=f"mesh is {mesh!r}"[:120],
            why="it says what lies along which axis",
            do="pass mesh=jax.make_mesh(...), or call this inside of jax.set_mesh(mesh)",
        )
    return mesh


def axis(mesh: Mesh, use: str, allow_any_name: bool = True) -> str:
    """Returns the axis of the mesh for this use.

    Args:
      mesh: the mesh.
      use: "tp", "fsdp", "expert" or "sequence".
      allow_any_name: whether the only axis of a mesh serves under any name.

    Raises:
      WrongArguments: no axis has one of the names.

    Example:
      >>> import jax
      >>> axis(jax.make_mesh((1, 1), ("data", "model")), "tp")
      'model'
    """
    names = [name for name in NAMES[use] if name in mesh.axis_names]
    if not names and allow_any_name and len(mesh.axis_names) == 1:
        names = [*mesh.axis_names]
    if not names:
        raise WrongArguments(
            f"the mesh has no axis for {use}",
            where=f"mesh {dict(mesh.shape)}",
            why=f"the plan shards over an axis named {', '.join(NAMES[use])}",
            do=f'name one so: jax.make_mesh((2, 4), ("data", "{NAMES[use][0]}")), or give rules',
        )
    return names[0]


def sequence_axis(mesh: Mesh | AbstractMesh) -> str:
    """Returns the axis that divides the length of inputs; "" where the mesh has none."""
    return next((name for name in mesh.axis_names if name in NAMES["sequence"]), "")
