"""Devices that are not here, which programs can be compiled for: their compilers need no chip.

libtpu knows the TPUs by name. XLA's compiler for GPUs reads a description: sizes of memories,
numbers of cores, from https://github.com/openxla/xla, xla/backends/gpu/target_config/specs.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any, NamedTuple

import jax

from anyjax.chips.figures import slice_of
from anyjax.errors import WrongArguments, missing
from anyjax.private_names import need

TPUS = {"v4": "v4", "v5e": "v5e", "v5p": "v5p", "v6e": "v6e", "v7x": "tpu7x"}  # libtpu's names
ALONE = {  # without them libtpu asks a cloud's metadata server which machine it is on
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
HOST = 8  # GPUs of one machine
NO_TILES = "Couldn't find output tile sizes"  # https://github.com/jax-ml/jax/issues/34010


class Gpu(NamedTuple):
    """A GPU as XLA's compiler asks for it: its name as JAX has it, compute capability, processors
    and the units of one, bytes of memory and its rate, of the cache, of one processor's shared
    memory, and GHz.
    """

    kind: str
    capability: int
    cores: int
    units: int
    memory: int
    bandwidth: int
    cache: int
    shared: int
    clock: float

    def described(self) -> str:
        """Returns the text of a GpuTargetConfigProto."""
        limits = {
            "threads_per_block_limit": 1024,
            "threads_per_warp": 32,
            "threads_per_core_limit": 2048,
            "block_dim_limit_x": 2**31 - 1,
            "block_dim_limit_y": 65535,
            "block_dim_limit_z": 65535,
            "registers_per_core_limit": 65536,
            "registers_per_block_limit": 65536,
            "shared_memory_per_block": 49152,
            "shared_memory_per_block_optin": self.shared - 1024,
            "shared_memory_per_core": self.shared,
            "core_count": self.cores,
            "fpus_per_core": self.units,
            "memory_bandwidth": self.bandwidth,
            "device_memory_size": self.memory,
            "l2_cache_size": self.cache,
            "clock_rate_ghz": self.clock,
        }
        lines = " ".join(f"{name}: {value}" for name, value in limits.items())
        capability = f"cuda_compute_capability {{ major: {self.capability} minor: 0 }}"
        return (
            f"gpu_device_info {{ {lines} {capability} }} platform_name: "
            f'"CUDA" dnn_version_info {{ major: 9 minor: 8 }} device_description_str: "{self.kind}"'
        )


_ampere = lambda kind, memory, rate: Gpu(
    kind, 8, 108, 64, memory, rate, 41943040, 167936, 1.41
)  # fmt: skip
_hopper = lambda kind, memory, rate: Gpu(
    kind, 9, 132, 128, memory, rate, 52428800, 233472, 1.98
)  # fmt: skip
GPUS = {
    "a100-40": _ampere("NVIDIA A100-SXM4-40GB", 42331013120, 1555200000000),
    "a100-80": _ampere("NVIDIA A100-SXM4-80GB", 85100068864, 2039040000000),
    "h100": _hopper("NVIDIA H100 80GB HBM3", 84942979072, 3352320000000),
    "h200": _hopper("NVIDIA H200", 151397597184, 4800000000000),
    "b200": Gpu("NVIDIA B200", 10, 148, 128, 191514411008, 7672320000000, 132644864, 233472, 1.965),
}


def platform_of(chip: str) -> str | None:
    """Returns JAX's name of the platform of a chip, None where nothing compiles for it."""
    return "tpu" if chip in TPUS else "cuda" if chip in GPUS else None


def platform_of_device(device: jax.Device) -> str:
    """Returns the platform that programs for a device are lowered for."""
    return "cuda" if device.platform == "gpu" else device.platform


def compiler_options(device: jax.Device) -> dict[str, int]:
    """Returns the options of the compiler for a device that is not here."""
    return {"xla_gpu_autotune_level": 0} if device.platform == "gpu" else {}  # which runs kernels


def compile_lowered(
    lowered: jax.stages.Lowered, device: jax.Device, options: dict | None = None
) -> jax.stages.Compiled:
    """Compiles a program for a device that is not here.

    XLA finds the tiles of a GPU's fused matrix products by running them. Without the device it
    takes some that do not fit every operand, and raises; such programs have cuBLAS' products.
    """
    chosen: dict = {**compiler_options(device), **(options or {})}
    try:
        return lowered.compile(chosen)
    except jax.errors.JaxRuntimeError as error:
        if NO_TILES not in str(error):
            raise
    return lowered.compile({**chosen, "xla_gpu_enable_triton_gemm": False})


def devices_of(chips: str) -> list[jax.Device]:
    """Returns the devices of a slice, which a mesh can be made of; nothing can run on them.

    Args:
      chips: such as "v6e-8" or "h100-1". A v7x has two devices.

    Raises:
      WrongArguments: no compiler knows the chip, or there is no slice of so many.
      MissingDependency: the package with the compiler is not installed.
    """
    chip, count = slice_of(chips)
    if chip.name in GPUS:
        return _gpus(GPUS[chip.name], count, chips)
    if chip.name in TPUS:
        return _tpus(TPUS[chip.name], chip.torus, count, chips)
    raise WrongArguments(
        f"there is no compiler for {chips} to ask",
        where="chips",
        why="programs are compiled for chips that are not here by libtpu and by JAX's CUDA plugin",
        do=f"take one of {', '.join([*TPUS, *GPUS])}; an estimate knows them all",
    )


def _gpus(gpu: Gpu, count: int, chips: str) -> list[jax.Device]:
    _compiler(chips, "jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")
    hosts, rest = divmod(count, HOST)
    if hosts and rest:
        raise _no_slice(count, f"{HOST} GPUs share a machine", HOST * (hosts + 1))
    shape = f"1x{max(hosts, 1)}x{HOST if hosts else count}"
    return _topology("", "cuda", target_config=gpu.described(), topology=shape).devices


def _tpus(name: str, torus: int, count: int, chips: str) -> list[jax.Device]:
    libtpu = _compiler(chips, "libtpu")
    if jax.default_backend() != "tpu":  # there libtpu is loaded, and knows where it is
        for key, value in ALONE.items():
            os.environ.setdefault(key, value)
        os.environ.setdefault("TPU_LIBRARY_PATH", libtpu.get_library_path())
    if count & (count - 1):
        raise _no_slice(count, "slices are powers of two", 1 << count.bit_length())
    sizes = slice_sizes(count, torus)
    options: dict[str, object] = {}
    if count < 4:  # a part of a host
        options["chips_per_host_bounds"] = [*sizes, 1][:3]
    if name == "v4":
        options["chip_config_name"] = "megacore"  # as JAX has it: one device for both cores
    try:
        return _topology(f"{name}:{'x'.join(map(str, sizes))}", "tpu", **options).devices
    except jax.errors.JaxRuntimeError as error:
        raise WrongArguments(
            f"libtpu has no slice {chips}",
            where="chips",
            why=" ".join(str(error).split())[:200],
            do="take a smaller slice",
        ) from error


def slice_sizes(count: int, torus: int) -> list[int]:
    """Returns the sides of a slice of a power of two of chips, the shortest first.

    Example:
      >>> slice_sizes(8, 2), slice_sizes(4, 3), slice_sizes(32, 3)
      ([2, 4], [2, 2, 1], [2, 4, 4])
    """
    if torus == 3 and count <= 4:
        return [*slice_sizes(count, 2), 1]
    power = count.bit_length() - 1
    return [1 << (power + i) // torus for i in range(torus)]


def _no_slice(count: int, why: str, near: int) -> WrongArguments:
    return WrongArguments(
        f"there is no slice of {count}", where="chips", why=why, do=f"take {near}"
    )


def _topology(*args: object, **kwargs: object) -> Any:
    return need("jax.experimental.topologies:get_topology_desc", "compiling for other machines")(
        *args, **kwargs
    )


def _compiler(chips: str, *modules: str) -> Any:
    """Returns the first of these modules that is installed; JAX finds the CUDA plugin by itself."""
    name = next(filter(_is_installed, modules), modules[0])
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing(error, f"a program for {chips}") from error


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False
