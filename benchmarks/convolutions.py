"""Convolutions that anyjax computes otherwise on CPUs, depthwise ones and those of places or
patches, beside XLA's own: values and gradients.

python benchmarks/convolutions.py
"""

from __future__ import annotations

import statistics
import time

import jax
import numpy as np
from jax import lax
from rich.console import Console
from rich.table import Table

from anyjax.numerics.convolution import conv_general_dilated

# batch, channels, space; window; stride; outputs, None of depthwise ones: of a model that has them
CASES = {
    "MobileNetV2": ((4, 96, 48, 48), (3, 3), 2, None),
    "MobileNetV2, late": ((4, 576, 6, 6), (3, 3), 1, None),
    "EfficientNet": ((4, 480, 12, 12), (5, 5), 1, None),
    "ConvNeXt": ((4, 96, 56, 56), (7, 7), 1, None),
    "Mamba": ((4, 1536, 256), (4,), 1, None),
    "Conformer": ((4, 512, 256), (31,), 1, None),
    "ResNet-50, early": ((1, 64, 56, 56), (1, 1), 1, 256),
    "ResNet-50, late": ((1, 512, 7, 7), (1, 1), 1, 2048),
    "ResNet-50, eight rows": ((8, 512, 28, 28), (1, 1), 1, 128),
    "ConvNeXt, between stages": ((1, 384, 14, 14), (2, 2), 2, 768),
    "ViT": ((1, 3, 224, 224), (16, 16), 16, 768),
}


def seconds(run, *args) -> float:
    began = time.process_time()
    jax.block_until_ready(run(*args))
    return time.process_time() - began


def ratios(shape, window, stride, outputs, repeats=10) -> tuple[float, float, float]:
    """What ours takes of XLA's time: values, gradients, the first call."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    inputs, groups = (shape[1], 1) if outputs else (1, shape[1])
    w = rng.standard_normal((outputs or shape[1], inputs, *window)).astype(np.float32)
    strides = (stride,) * len(window)
    padding = "VALID" if strides == window else "SAME"
    found: dict[str, list[float]] = {}
    for name, convolve in {"ours": conv_general_dilated, "xla": lax.conv_general_dilated}.items():
        run = lambda x, w, f=convolve: f(x, w, strides, padding, feature_group_count=groups)
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
