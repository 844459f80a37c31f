"""Torch's operators in terms of JAX, by family."""

from tojax.flax.codegen.ops import (
    create,
    elementwise,
    fft,
    index,
    nn,
    reduce,
    resize,
    shape,
    windows,
)

__all__ = [
    "create",
    "elementwise",
    "fft",
    "index",
    "nn",
    "reduce",
    "resize",
    "shape",
    "windows",
]
