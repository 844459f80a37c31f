"""The program of a target's own compiler, compiled from shapes and never run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from anyjax.chips.devices import compile_lowered, platform_of_device
from anyjax.errors import WrongArguments
from anyjax.parallel.collectives import Traffic
from anyjax.parallel.estimation.call import Traced
from anyjax.parallel.estimation.divide.partition import Spec
from anyjax.parallel.estimation.kernels import Kernel, Text


@dataclass(frozen=True)
class Compiled:
    """XLA's ``memory_analysis`` and ``cost_analysis``, for one device.

    Attributes:
      arguments, outputs, aliased, temporaries: bytes; results in an argument's place are aliased.
      flops: FLOPs; loops' bodies count once, GPUs' are not told.
      collectives: by kind.
      kernels: the heaviest first, those of loops as often as they run.
      seconds: that the compiler took.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    flops: float
    collectives: dict[str, Traffic]
    kernels: tuple[Kernel, ...]
    seconds: float = 0

    @property
    def peak(self) -> int:
        """Bytes in use while the program runs."""
        return self.arguments + self.outputs - self.aliased + self.temporaries

    @property
    def traffic(self) -> int:
        """Bytes that the kernels read and write."""
        return sum(k.bytes for k in self.kernels)

    @property
    def cycles(self) -> int:
        """Cycles that a TPU's compiler expects, without those of kernels that it did not make."""
        return sum(k.cycles for k in self.kernels)


def compile_call(
    traced: Traced,
    mesh: dict[str, int],
    inputs: list[Spec],
    options: dict | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Compiled:
    """Compiles a call for a mesh.

    Args:
      traced: the call.
      mesh: sizes of its axes.
      inputs: how each input is divided.
      options: of the compiler.
      devices: of the mesh, by default of this process; they may be such as nothing can run on.

    Raises:
      WrongArguments: there are not as many devices.
    """
    start = time.perf_counter()
    program = compiled_program(traced, mesh, inputs, options, devices)
    return analysis(program, time.perf_counter() - start)


def compiled_program(
    traced: Traced,
    mesh: dict[str, int],
    inputs: list[Spec],
    options: dict | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> jax.stages.Compiled:
    """Returns the compiled program, see ``compile_call``."""
    count = math.prod(mesh.values())
    devices = jax.devices() if devices is None else devices
    if count > len(devices):
        raise WrongArguments(
            f"there are {len(devices)} devices to compile for, not {count}",
            where=f"mesh {mesh}",
            why="XLA compiles for devices that the process has",
            do=f'start with jax.config.update("jax_num_cpu_devices", {count}), before any array',
        )
    device_mesh = jax.make_mesh(
        tuple(mesh.values()),
        tuple(mesh),
        axis_types=(jax.sharding.AxisType.Auto,) * len(mesh),
        devices=devices[:count],
    )
    partition_specs = (PartitionSpec(*(axes or None for axes in spec)) for spec in inputs)
    shardings = [NamedSharding(device_mesh, spec) for spec in partition_specs]
    leaves = [
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s) for x, s in zip(traced.leaves, shardings)
    ]
    call = traced.call
    arguments = jax.tree.unflatten(jax.tree.structure(call.arguments), leaves)
    jitted = jax.jit(
        lambda *args: jax.tree.leaves(call.function(*args)),
        donate_argnums=tuple(call.aliases),
        out_shardings=[None if i is None else shardings[i] for i in traced.outputs],
    )
    platform = platform_of_device(devices[0])
    lowered = jitted.trace(*arguments).lower(lowering_platforms=(platform,))
    of_call = (call.options or {}) if platform == "cpu" else {}
    return compile_lowered(lowered, devices[0], {**of_call, **(options or {})})


def analysis(program: jax.stages.Compiled, seconds: float = 0) -> Compiled:
    """Returns the compiler's analysis of a program."""
    memory: Any = program.memory_analysis()
    costs: Any = program.cost_analysis() or {}
    text: Any = program.as_text()
    kernels = Text.of(text)
    return Compiled(
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
        memory.alias_size_in_bytes,
        memory.temp_size_in_bytes,
        float(costs.get("flops", 0)),
        kernels.collectives(),
        tuple(kernels.kernels()),
        seconds,
    )
