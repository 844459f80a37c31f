"""``torch.jax``: what torch asks a device "jax" for, and its memory by ``torch.accelerator``."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import torch

from anyjax.torch.core import private

DEVICE = "jax"
BYTES = {  # torch's names of statistics: JAX's
    "allocated_bytes.all.current": "bytes_in_use",
    "allocated_bytes.all.peak": "peak_bytes_in_use",
    "reserved_bytes.all.current": "bytes_reserved",
    "reserved_bytes.all.peak": "peak_bytes_reserved",
}


def _is_in_bad_fork() -> bool:
    return False


def manual_seed_all(seed: int) -> None:
    """Does nothing: random numbers follow torch's generator, or the seed of the environment."""


def get_rng_state(device: object = None) -> torch.Tensor:
    """Returns the state of torch's generator, which random numbers follow."""
    return torch.get_rng_state()


def set_rng_state(new_state: torch.Tensor, device: object = None) -> None:
    """Sets torch's generator, which random numbers follow."""
    torch.set_rng_state(new_state)


def device_count() -> int:
    """Returns 1: arrays lie on one device or on many by their sharding."""
    return 1


def is_available() -> bool:
    """Returns True."""
    return True


def current_device() -> int:
    """Returns 0, the only index."""
    return 0


def set_device(device: object) -> None:
    """Does nothing: there is one index."""


def synchronize(device: object = None) -> None:
    """Waits until JAX has computed all arrays there are."""
    jax.block_until_ready(jax.live_arrays())


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Returns the dtypes of autocast."""
    return [torch.float16, torch.bfloat16]


def memory_stats(device: object = None, /) -> OrderedDict[str, Any]:
    """Returns JAX's statistics of its first device by torch's names; none of them for CPUs."""
    stats = jax.local_devices()[0].memory_stats() or {}
    by_name = {name: stats[key] for name, key in BYTES.items() if key in stats}
    return OrderedDict(sorted((stats | by_name).items()))


def _bytes(name: str) -> Callable[..., int]:
    return lambda device=None, /: memory_stats().get(name, 0)


memory_allocated, max_memory_allocated, memory_reserved, max_memory_reserved = map(_bytes, BYTES)


def get_memory_info(device: object = None, /) -> tuple[int, int]:
    """Returns (free, all) bytes of the device, zeros where JAX does not know them."""
    stats = memory_stats()
    limit = stats.get("bytes_limit", 0)
    return (limit - stats.get("bytes_in_use", 0) if limit else 0), limit


def empty_cache(device: object = None, /) -> None:
    """Does nothing: JAX gives memory back with its arrays, and counts from its start."""


mem_get_info = get_memory_info
reset_peak_memory_stats = reset_accumulated_memory_stats = empty_cache
SERVED = (
    "empty_cache", "get_memory_info", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats",
    "reset_peak_memory_stats", "synchronize",
)  # fmt: skip


class Hooks(private.accelerator.PrivateUse1Hooks):
    """Answers torch's C++, which Dynamo asks in each compilation."""

    def is_available(self) -> bool:
        return True

    def has_primary_context(self, device_index: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


class Guard(private.accelerator.DeviceGuard):
    """Has the device's streams, of which there is one without meaning."""

    def type_(self) -> object:
        return private.DEVICE_TYPE


HOOKS, GUARD = Hooks(), Guard()  # torch keeps no reference


def register() -> None:
    """Gives torch the device "jax", as importing torchax does.

    torch knows devices of its own C++ alone: it would end in an assertion for memory of this one,
    so that ``torch.accelerator`` asks here.
    """
    module = sys.modules[__name__]
    torch.utils.rename_privateuse1_backend(DEVICE)
    if not hasattr(torch, DEVICE):
        private.register_device(DEVICE, module)
        private.accelerator.register_python_privateuseone_hook(HOOKS)
        private.accelerator.register_python_privateuseone_device_guard(GUARD)
    for name in SERVED:
        for owner in (torch.accelerator, torch.accelerator.memory):
            if hasattr(owner, name):
                setattr(owner, name, getattr(module, name))
