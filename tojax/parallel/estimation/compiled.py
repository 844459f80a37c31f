"""What XLA's own program for as many virtual CPU devices needs: compiled from shapes, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from tojax.errors import WrongArguments
from tojax.parallel.collectives import Traffic, collectives
from tojax.parallel.estimation.call import Traced
from tojax.parallel.estimation.divide.partition import Placed


@dataclass(frozen=True)
class Compiled:
    """Of XLA's ``memory_analysis`` and ``cost_analysis``, on one device.

    Attributes:
      arguments, outputs, aliased, temporaries: bytes; results in an argument's place are aliased.
      flops, traffic: what loops contain counts once.
      collectives: by kind.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    flops: float
    traffic: float
    collectives: dict[str, Traffic]

    @property
    def peak(self) -> int:
        """Bytes while it runs."""
        return self.arguments + self.outputs - self.aliased + self.temporaries


def compile_call(
    traced: Traced, mesh: dict[str, int], inputs: list[Placed], options: dict | None = None
) -> Compiled:
    """Compiles a call for a mesh of this process's devices.

    Raises:
      WrongArguments: there are not as many devices.
    """
    return analysis(executable(traced, mesh, inputs, options))


def executable(
    traced: Traced, mesh: dict[str, int], inputs: list[Placed], options: dict | None = None
) -> Any:
    """The compiled program, see ``compile_call``."""
    number = 1
    for n in mesh.values():
        number *= n
    if number > jax.device_count():
        raise WrongArguments(
            f"there are {jax.device_count()} devices to compile for, not {number}",
            where=f"mesh {mesh}",
            why="XLA compiles for devices that the process has",
            do=f'start with jax.config.update("jax_num_cpu_devices", {number}), before any array',
        )
    real = jax.make_mesh(
        tuple(mesh.values()), tuple(mesh),
        axis_types=(jax.sharding.AxisType.Auto,) * len(mesh), devices=jax.devices()[:number],
    )  # fmt: skip
    there = [NamedSharding(real, PartitionSpec(*(a or None for a in p))) for p in inputs]
    leaves = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s) for x, s in zip(traced.leaves, there)
    ]
    call = traced.call
    arguments = jax.tree.unflatten(jax.tree.structure(call.arguments), leaves)
    ends = [None if i is None else there[i] for i in traced.outputs]
    jitted = jax.jit(
        lambda *given: jax.tree.leaves(call.function(*given)),
        donate_argnums=tuple(call.again), out_shardings=ends,
        compiler_options={**(call.options or {}), **(options or {})},
    )  # fmt: skip
    return jitted.lower(*arguments).compile()


def analysis(program: Any) -> Compiled:
    """What XLA says of a compiled program."""
    memory, costs = program.memory_analysis(), program.cost_analysis()
    return Compiled(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.alias_size_in_bytes,
        memory.temp_size_in_bytes,
        float(costs.get("flops", 0)),
        float(costs.get("bytes accessed", 0)),
        collectives(program.as_text()),
    )
