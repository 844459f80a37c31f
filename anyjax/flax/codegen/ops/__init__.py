"""Torch's operators in terms of JAX, by family."""

# ruff: noqa: F401  (they fill the table)
from anyjax.flax.codegen.ops import (
    create,
    elementwise,
    index,
    loss,
    nn,
    reduce,
    resize,
    shape,
    windows,
)
