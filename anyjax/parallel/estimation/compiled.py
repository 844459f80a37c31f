"""XLA's own program for as many virtual CPU devices, compiled from shapes and never run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from anyjax.errors import WrongArguments
from anyjax.parallel.collectives import Traffic, collectives
from anyjax.parallel.estimation.call import Traced
from anyjax.parallel.estimation.divide.partition import Spec


@dataclass(frozen=True)
class Compiled:
    """XLA's ``memory_analysis`` and ``cost_analysis``, for one device.

    Attributes:
      arguments, outputs, aliased, temporaries: bytes; results in an argument's place are aliased.
      flops, traffic: FLOPs, and bytes of memory traffic; loops' bodies count once.
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
        """Bytes in use while the program runs."""
        return self.arguments + self.outputs - self.aliased + self.temporaries


def compile_call(
    traced: Traced, mesh: dict[str, int], inputs: list[Spec], options: dict | None = None
) -> Compiled:
    """Compiles a call for a mesh of this process's devices.

    Raises:
      WrongArguments: there are not as many devices.
    """
    return analysis(compiled_program(traced, mesh, inputs, options))


def compiled_program(
    traced: Traced, mesh: dict[str, int], inputs: list[Spec], options: dict | None = None
) -> jax.stages.Compiled:
    """Returns the compiled program, see ``compile_call``."""
    count = math.prod(mesh.values())
    if count > jax.device_count():
        raise WrongArguments(
            f"there are {jax.device_count()} devices to compile for, not {count}",
            where=f"mesh {mesh}",
            why="XLA compiles for devices that the process has",
            do=f'start with jax.config.update("jax_num_cpu_devices", {count}), before any array',
        )
    device_mesh = jax.make_mesh(
        tuple(mesh.values()),
        tuple(mesh),
        axis_types=(jax.sharding.AxisType.Auto,) * len(mesh),
        devices=jax.devices()[:count],
    )
    partition_specs = (PartitionSpec(*(axes or None for axes in spec)) for spec in inputs)
    shardings = [NamedSharding(device_mesh, spec) for spec in partition_specs]
    leaves = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s) for x, s in zip(traced.leaves, shardings)
    ]
    call = traced.call
    arguments = jax.tree.unflatten(jax.tree.structure(call.arguments), leaves)
    out_shardings = [None if i is None else shardings[i] for i in traced.outputs]
    jitted = jax.jit(
        lambda *args: jax.tree.leaves(call.function(*args)),
        donate_argnums=tuple(call.aliases),
        out_shardings=out_shardings,
        compiler_options={**(call.options or {}), **(options or {})},
    )
    return jitted.lower(*arguments).compile()


def analysis(program: jax.stages.Compiled) -> Compiled:
    """Returns XLA's analysis of a compiled program."""
    memory: Any = program.memory_analysis()
    costs: Any = program.cost_analysis()
    text: Any = program.as_text()
    return Compiled(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.alias_size_in_bytes,
        memory.temp_size_in_bytes,
        float(costs.get("flops", 0)),
        float(costs.get("bytes accessed", 0)),
        collectives(text),
    )
