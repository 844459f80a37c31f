"""The effects of a plan on a model: placements, memory, and the program's communication."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from anyjax import html_text
from anyjax.calls.explicit_mesh import automatic
from anyjax.model import Model
from anyjax.parallel._shard import specs, weights
from anyjax.parallel.batches import specs_of
from anyjax.parallel.collectives import Traffic, collectives
from anyjax.parallel.forward import Forward
from anyjax.parallel.plans.axes import current_mesh
from anyjax.parallel.plans.derived import SMALL
from anyjax.parallel.plans.plans import Plan
from anyjax.report_page import write
from anyjax.takes_model import takes_model


@dataclass(frozen=True)
class Row:
    """A weight: its placement, and a remark if it is on every device without need."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    spec: PartitionSpec
    bytes: int
    per_device: int
    remark: str = ""


@dataclass(frozen=True)
class Explanation:
    """The result of ``explain``; ``str`` of it is a table, ``save`` writes a page.

    Attributes:
      mesh: sizes of its axes.
      rows: the weights, by name.
      traffic: collectives of the compiled forward pass, by kind: their number, and bytes per
        device and call.
      arguments, temporaries: bytes on one device while it runs.
    """

    mesh: dict[str, int]
    rows: list[Row]
    traffic: dict[str, Traffic]
    arguments: int
    temporaries: int

    @property
    def replicated(self) -> list[Row]:
        """Large weights that are on every device."""
        return [row for row in self.rows if row.remark]

    def summary(self) -> list[tuple[str, str]]:
        """Returns totals, as pairs of words and numbers."""
        total, per_device = (sum(getattr(r, k) for r in self.rows) for k in ("bytes", "per_device"))
        lines = [
            ("mesh", ", ".join(f"{k}: {v}" for k, v in self.mesh.items())),
            (
                "weights",
                f"{total:,} bytes, {per_device:,} per device ({per_device / max(total, 1):.3f})",
            ),
            ("program", f"{self.arguments:,} bytes of arguments, {self.temporaries:,} of others"),
        ]
        for kind, (count, size) in sorted(self.traffic.items()):
            lines.append((kind, f"{count} x, {size:,} bytes"))
        return lines

    def __str__(self) -> str:
        names = max([len(r.name) for r in self.rows] + [4])
        lines = [
            f"{r.name:<{names}}  {list(r.shape)!s:<16} {r.spec!s:<36} {r.per_device:>14,}"
            + (f"  <- {r.remark}" if r.remark else "")
            for r in self.rows
        ]
        head = f"{'name':<{names}}  {'shape':<16} {'spec':<36} {'bytes/device':>14}"
        return "\n".join([head, *lines, "", *(f"{k:<20} {v}" for k, v in self.summary())])

    def _repr_html_(self) -> str:
        top = max((r.bytes for r in self.rows), default=1)
        bar = lambda r: html_text.bar(160 * r.bytes / top, r.per_device / max(r.bytes, 1))
        header = "name", "shape", "dtype", "spec", "bytes/device", "of all", "remark"
        rows = [
            (r.name, str([*r.shape]), r.dtype, str(r.spec), f"{r.per_device:,}", bar(r), r.remark)
            for r in self.rows
        ]
        return html_text.div(
            html_text.table(("", ""), self.summary()), html_text.table(header, rows, right=(4,))
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a page: the table with a bar for each weight, filled by one device's share."""
        write(path, html_text.page("Sharding", self._repr_html_()))


@takes_model
def explain(
    model: Model,
    mesh: Mesh | None = None,
    plan: Plan = "tp",
    *args: Any,
    rng: jax.Array | None = None,
    **kwargs: Any,
) -> Explanation:
    """Explains what ``shard(model, mesh, plan)`` would do; compiles, and places nothing.

    Args:
      model: any Model.
      mesh: the devices, by default those of ``jax.set_mesh``.
      plan: a name or rules, as for ``shard``.
      *args: an example of the call that is compiled, by default the last one; arrays are placed as
        by ``anyjax.parallel.place``.
      rng: the key of that call, where it draws random numbers.
      **kwargs: its arguments by name.

    Returns:
      The explanation: ``rows``, one for each weight, the bytes on each device, and the collectives
      of the compiled program. It prints as a table.

    Raises:
      WrongArguments: as in ``shard``, or there is no example call to compile.

    Example:
      >>> import jax, numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Linear(64, 8))
      >>> mesh = jax.make_mesh((jax.device_count(),), ("model",))
      >>> told = anyjax.parallel.explain(model, mesh, "tp", np.ones((4, 64), np.float32))
      >>> [(row.name, row.remark) for row in told.rows]
      [('weight', ''), ('bias', '')]
    """
    mesh = current_mesh(mesh)
    weight_specs = specs(model, mesh, plan, args, kwargs, rng)
    compiled = compile_forward(Forward.of(model, args, kwargs, rng), mesh, weight_specs)
    memory: Any = compiled.memory_analysis()
    text: Any = compiled.as_text()
    arrays = weights(model)
    largest = max((x.nbytes for x in arrays.values()), default=0)
    return Explanation(
        dict(mesh.shape),
        [explain_weight(name, x, mesh, weight_specs[name], largest) for name, x in arrays.items()],
        collectives(text),
        memory.argument_size_in_bytes,
        memory.temp_size_in_bytes,
    )


def explain_weight(name: str, x: jax.Array, mesh: Mesh, spec: PartitionSpec, largest: int) -> Row:
    """Returns a row of the table."""
    shard_shape = NamedSharding(mesh, spec).shard_shape(x.shape)
    size = int(np.prod(shard_shape, dtype=np.int64)) * x.dtype.itemsize
    remark = ""
    if shard_shape == x.shape and x.ndim > 1 and x.nbytes > SMALL * largest and mesh.size > 1:
        axis_sizes = sorted({n for n in mesh.shape.values() if n > 1})
        divides = any(size % n == 0 for size in x.shape for n in axis_sizes)
        why = (
            "the plan does not name it"
            if divides
            else f"{axis_sizes} divide none of its dimensions"
        )
        remark = f"on every device: {why}"
    return Row(name, x.shape, str(x.dtype), spec, x.nbytes, size, remark)


def compile_forward(
    forward: Forward, mesh: Mesh, weight_specs: dict[str, PartitionSpec]
) -> jax.stages.Compiled:
    """Compiles the forward pass from shapes alone; XLA chooses the outputs' shardings."""
    mesh = automatic(mesh)

    def abstract_at(
        x: jax.Array | jax.ShapeDtypeStruct, spec: PartitionSpec
    ) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))

    model = forward.model
    arrays = [*map(abstract_at, forward.arrays, specs_of(forward.arrays, mesh))]
    params, state = (
        {k: abstract_at(x, weight_specs.get(k, PartitionSpec())) for k, x in weight_arrays.items()}
        for weight_arrays in (model.params, model.state)
    )
    with jax.set_mesh(mesh):  # within the caller's own
        return jax.jit(forward.__call__).lower(params, state, arrays).compile()
