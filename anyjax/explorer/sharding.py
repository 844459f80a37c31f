"""A model divided over a mesh that need not be there: specs, bytes and collectives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jax.sharding import Mesh

from anyjax.parallel._estimate import checked_mesh, divide_call, estimate_traced, input_specs
from anyjax.parallel.estimation.call import Traced
from anyjax.parallel.estimation.divide.partition import Spec
from anyjax.parallel.estimation.report import Estimate
from anyjax.parallel.plans.plans import Plan


@dataclass(frozen=True)
class Placement:
    """An array on a mesh.

    Attributes:
      spec: the mesh axes that divide each dimension.
      shape: of the part on one device.
      bytes: of that part.
    """

    spec: Spec
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Sharding:
    """A call of a model on a mesh.

    Attributes:
      placements: by the names of params and state.
      estimate: memory, work and collectives of one device.
    """

    placements: dict[str, Placement]
    estimate: Estimate


def sharding_of(traced: Traced, mesh: Mesh | Mapping[str, int], plan: Plan) -> Sharding:
    """Divides a traced call over a mesh; nothing is compiled or placed.

    Raises:
      WrongArguments: the plan does not divide the weights, or the mesh not the rows.
    """
    sizes = dict(mesh.shape) if isinstance(mesh, Mesh) else dict(mesh)
    count = math.prod(sizes.values())
    chips = f"cpu-{count}"
    estimate = estimate_traced(traced, chips, plan, sizes, compile=False, search=False)
    sizes = checked_mesh(sizes, chips, count) or sizes
    divided = divide_call(traced, sizes, input_specs(traced, sizes, plan))
    pairs = zip(traced.roles, divided.program.inputs)
    placements = {
        role.name: Placement(divided.specs[v], divided.shape(v), divided.bytes(v))
        for role, v in pairs
        if role.name
    }
    return Sharding(placements, estimate)
