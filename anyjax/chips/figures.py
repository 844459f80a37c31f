"""Published figures of accelerators, and slices of them by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from anyjax.errors import WrongArguments

GB = 10**9
GIB = 2**30


@dataclass(frozen=True)
class Chip:
    """One accelerator.

    Attributes:
      flops: the highest rate of matrix products by dtype of the operands, FLOP/s, without sparsity.
      memory: bytes of HBM; 0 where it is not known.
      bandwidth: of that memory, bytes/s.
      link: bytes/s of one link in one direction; of a switch, of one chip into it.
      torus: dimensions of the torus that the links make; 0 where all chips meet in a switch.
      domain: how many chips the links reach.
      beyond: bytes/s of one chip to those that the links do not reach.
      devices: how many of JAX's share one chip.
    """

    name: str
    flops: Mapping[str, float]
    memory: int
    bandwidth: float
    link: float
    torus: int
    domain: int
    beyond: float
    devices: int = 1

    def rate(self, dtype: str) -> float:
        """Returns FLOP/s of matrix products of this dtype, or of the next wider one with units.

        float32 is JAX's default, TF32 on a GPU and one pass in bfloat16 on a TPU; "float32, high"
        and "float32, highest" are what was asked for: TPUs take 3 and 6 passes.
        """
        if dtype in self.flops:
            return self.flops[dtype]
        dtype, _, precision = dtype.partition(", ")
        if dtype == "float32" and "float32" not in self.flops:
            return self.flops["bfloat16"] / PASSES.get(precision, 1)
        for name in (dtype, *WIDER.get(dtype, ()), "bfloat16"):
            if name in self.flops:
                return self.flops[name]
        raise AssertionError(f"{self.name} has no rate")

    def reach(self, axes: Collection[str], mesh: Mapping[str, int]) -> float:
        """Returns the bytes/s that reach a chip in a collective over some axes of a mesh.

        Chips along the last axis are neighbours. A box of chips fills dimensions of the torus one
        after the other; its corners have a link along each, two where the torus closes. Traffic
        beyond the domain goes through the network of all its chips that take part.

        Example:
          >>> chip, mesh = CHIPS["h100"], {"data": 2, "model": 8}
          >>> [chip.reach(axes, mesh) / 1e9 for axes in (("model",), ("data",), ("data", "model"))]
          [450.0, 50.0, 400.0]
        """
        size = near = stride = 1
        for axis, n in reversed([*mesh.items()]):
            if axis in axes:
                size *= n
                near *= min(n, max(1, self.domain // stride))
            stride *= n
        links = min(self.torus, max(1, near.bit_length() - 1)) * (2 if near >= self.closed else 1)
        inside = self.link * (links if self.torus else 1)
        return inside if near == size else min(inside, near * self.beyond)

    @property
    def closed(self) -> int:
        """Chips of the smallest slice whose torus closes: 4 x 4 x 4, or 16 x 16."""
        return 64 if self.torus == 3 else 256


PASSES = {"high": 3, "highest": 6}
WIDER = {
    "int4": ("int8",),
    "float8_e4m3fn": ("bfloat16",),
    "float16": ("bfloat16",),
    "float64": ("float32",),
}


def _tpu(
    name, bfloat16, int8, memory, bandwidth, link, torus, domain, beyond, devices=1, **other_rates
):
    rates = {"bfloat16": bfloat16, "int8": int8, **other_rates}
    return Chip(name, rates, memory * GIB, bandwidth, link, torus, domain, beyond, devices)


def _gpu(name, float32, tf32, bfloat16, int8, memory, bandwidth, link, beyond, **other_rates):
    rates = {"float32": tf32, "float32, highest": float32, "bfloat16": bfloat16, "int8": int8}
    rates |= other_rates
    return Chip(name, rates, memory * GB, bandwidth, link, 0, 8, beyond)


# Rates are without sparsity. Links of TPUs: the chip's bandwidth in both directions over twice its
# ports (4 on a 2D torus, 6 on a 3D one). The network beyond a pod, and beyond the eight GPUs of a
# node: what one chip has of the host's, as the vendors' own machines are built.
CHIPS = {
    chip.name: chip
    for chip in (
        # https://docs.cloud.google.com/tpu/docs/v4 and, for its links,
        # https://jax-ml.github.io/scaling-book/tpus
        _tpu("v4", 275e12, 275e12, 32, 1200e9, 45e9, 3, 4096, 6.25e9),
        # https://docs.cloud.google.com/tpu/docs/v5e
        _tpu("v5e", 197e12, 393e12, 16, 819e9, 50e9, 2, 256, 3.125e9),
        # https://docs.cloud.google.com/tpu/docs/v5p
        _tpu("v5p", 459e12, 918e12, 95, 2765e9, 100e9, 3, 8960, 6.25e9),
        # https://docs.cloud.google.com/tpu/docs/v6e
        _tpu("v6e", 918e12, 1836e12, 32, 1638e9, 100e9, 2, 256, 12.5e9),
        # https://docs.cloud.google.com/tpu/docs/tpu7x (no units for int8)
        _tpu(
            "v7x", 2307e12, 2307e12, 192, 7380e9, 100e9, 3, 9216, 12.5e9, 2, float8_e4m3fn=4614e12
        ),
        # https://www.nvidia.com/en-us/data-center/a100/ (one 200 Gb/s card each)
        _gpu("a100-40", 19.5e12, 156e12, 312e12, 624e12, 40, 1555e9, 300e9, 25e9),
        _gpu("a100-80", 19.5e12, 156e12, 312e12, 624e12, 80, 2039e9, 300e9, 25e9),
        # https://www.nvidia.com/en-us/data-center/h100/ (SXM; half of the rates with sparsity)
        _gpu(
            "h100",
            67e12,
            494.5e12,
            989.5e12,
            1979e12,
            80,
            3350e9,
            450e9,
            50e9,
            float8_e4m3fn=1979e12,
        ),
        # https://www.nvidia.com/en-us/data-center/h200/
        _gpu(
            "h200",
            67e12,
            494.5e12,
            989.5e12,
            1979e12,
            141,
            4800e9,
            450e9,
            50e9,
            float8_e4m3fn=1979e12,
        ),
        # https://resources.nvidia.com/en-us-blackwell-architecture (HGX B200)
        _gpu(
            "b200",
            75e12,
            1100e12,
            2250e12,
            4500e12,
            180,
            8000e9,
            900e9,
            50e9,
            float8_e4m3fn=4500e12,
        ),
        # https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html (seven links)
        _gpu(
            "mi300x",
            163.4e12,
            653.7e12,
            1307.4e12,
            2614.9e12,
            192,
            5300e9,
            448e9,
            50e9,
            float8_e4m3fn=2614.9e12,
        ),
        # No product: a core with two vector units of 16 floats at 3 GHz, one memory channel, and
        # memory in the place of links. For runs on virtual devices; memory is not judged.
        Chip("cpu", {"float32": 192e9, "bfloat16": 192e9}, 0, 20e9, 10e9, 0, 2**30, 10e9),
    )
}
OTHER_NAMES = {"v5litepod": "v5e", "ironwood": "v7x", "tpu7x": "v7x", "trillium": "v6e"}


def slice_of(chips: str) -> tuple[Chip, int]:
    """Returns the chip and the number of chips.

    Args:
      chips: such as ``v6e-8``: eight chips, also of kinds that vendors count in cores.

    Raises:
      WrongArguments: there is no such chip in the table, or no number.

    Example:
      >>> chip, count = slice_of("a100-80-16")
      >>> chip.name, chip.memory // 10**9, count
      ('a100-80', 80, 16)
    """
    name, _, number = chips.lower().rpartition("-")
    name = OTHER_NAMES.get(name, name)
    if re.fullmatch(r"[1-9]\d{0,6}", number) and name in CHIPS:
        return CHIPS[name], int(number)
    kind = name if re.fullmatch(r"\d+", number) else chips.lower()
    near = difflib.get_close_matches(kind, [*CHIPS, *OTHER_NAMES], 1, 0.3) or ["v6e"]
    is_chip = kind in CHIPS
    raise WrongArguments(
        f"{chips!r} does not say how many chips" if is_chip else f"there is no chip {chips!r}",
        where="--chips, or chips=",
        why="a slice is the name of a chip, a dash and a number"
        if is_chip
        else f"the table has {', '.join(CHIPS)}",
        do=f"write {kind if is_chip else near[0]}-8 for eight of them",
    )
