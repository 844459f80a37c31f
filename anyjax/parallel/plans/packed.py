"""Plans for packed matrices: numbers, scales and zeros are divided as the matrix would be."""

from __future__ import annotations

import math
from typing import Any, Protocol

from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from anyjax.errors import WrongArguments


class Form(Protocol):
    """``transforms.packed.Packed``: its parts are transposed, each block has one scale."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def block(self) -> int: ...
    @property
    def row(self) -> int: ...
    @property
    def parts(self) -> tuple[str, ...]: ...


def fits(form: Form, dimension: int, shards: int) -> bool:
    """Returns whether a dimension of the matrix can be divided without cutting a block.

    A block that is a whole row may be cut: each device has the row's scale.
    """
    shard_length = form.row // shards
    keeps_blocks = shard_length % form.block == 0 or (
        form.block == form.row and shard_length % 2 == 0
    )
    return dimension == 0 or (dimension == 1 and keeps_blocks)


def part_specs(
    form: Form, spec: PartitionSpec, mesh: Mesh | AbstractMesh
) -> dict[str, PartitionSpec]:
    """Returns the specs of numbers, scales and zeros for the spec of their matrix.

    Raises:
      WrongArguments: the spec cuts blocks.
    """
    rows, columns, *rest = (*spec, None, None)
    axes: Any = (columns,) if isinstance(columns, str) else columns or ()
    count = math.prod(mesh.shape[axis] for axis in axes)
    if any(rest) or (count > 1 and not fits(form, 1, count)):
        raise WrongArguments(
            f"the plan cuts blocks of {form.name}: {form.row} numbers in blocks of {form.block} "
            f"over {count} devices",
            where=f"mesh {dict(mesh.shape)}, {spec}",
            why="the numbers of a block share a scale, which is on one device",
            do="use an axis that divides the blocks, quantize with a smaller block=, or give rules "
            "that divide the rows: PartitionSpec(axis)",
        )
    numbers, *scales = form.parts
    scales_spec = PartitionSpec(None if form.block == form.row else columns, rows)
    return {numbers: PartitionSpec(columns, rows)} | dict.fromkeys(scales, scales_spec)
