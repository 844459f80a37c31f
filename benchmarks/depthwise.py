"""Depthwise convolutions: tojax's sum of shifted inputs beside XLA's own, values and gradients.

python benchmarks/depthwise.py
"""

from __future__ import annotations

import statistics
import time

import jax
import numpy as np
from jax import lax
from rich.console import Console
from rich.table import Table

from tojax.numerics.depthwise import conv_general_dilated

CASES = {  # batch, channels, space, window, stride: of the model that has them
    "MobileNetV2": ((4, 96, 48, 48), (3, 3), 2),
    "MobileNetV2, late": ((4, 576, 6, 6), (3, 3), 1),
    "EfficientNet": ((4, 480, 12, 12), (5, 5), 1),
    "ConvNeXt": ((4, 96, 56, 56), (7, 7), 1),
    "Mamba": ((4, 1536, 256), (4,), 1),
    "Conformer": ((4, 512, 256), (31,), 1),
}


def seconds(run, *args) -> float:
    began = time.perf_counter()
    jax.block_until_ready(run(*args))
    return time.perf_counter() - began


def ratios(shape, window, stride, repeats=10) -> tuple[float, float, float]:
    """What ours takes of XLA's time: values, gradients, the first call."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.standard_normal((shape[1], 1, *window)).astype(np.float32)
    strides, groups = (stride,) * len(window), shape[1]
    found: dict[str, list[float]] = {}
    for name, convolve in {"ours": conv_general_dilated, "xla": lax.conv_general_dilated}.items():
        run = lambda x, w, f=convolve: f(x, w, strides, "SAME", feature_group_count=groups)
        value = jax.jit(run)
        slope = jax.jit(jax.grad(lambda x, w, run=run: (run(x, w) ** 2).sum(), (0, 1)))
        first = seconds(value, x, w)
        seconds(slope, x, w)
        found[name] = [
            *(statistics.median(seconds(f, x, w) for _ in range(repeats)) for f in (value, slope)),
            first,
        ]
    value, slope, first = (ours / xla for ours, xla in zip(found["ours"], found["xla"]))
    return value, slope, first


def main() -> None:
    table = Table("case", "values: ours / XLA", "gradients", "first call")
    for name, case in CASES.items():
        table.add_row(name, *(f"{x:.3f}" for x in ratios(*case)))
    Console().print(table)


if __name__ == "__main__":
    main()
