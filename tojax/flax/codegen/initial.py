"""What a parameter or a constant holds before weights are loaded."""

from __future__ import annotations

import ast
from typing import Any

import torch

from tojax.flax.codegen.template import expression, fill

MOST = 256  # numbers that a file spells out


def initializer(value: Any) -> str:
    """How a bare parameter is initialised, by what it holds: ones, zeros, or normal numbers."""
    if bool((value == 1).all()):
        return "jnp.ones(shape)"
    if bool((value == 0).all()):
        return "jnp.zeros(shape)"
    return "rngs.params.normal(shape) * 0.02"


def constant(array: Any) -> ast.expr:
    """The values of a constant."""
    if array.numel() and bool((array == array.flatten()[0]).all()):
        return fill(
            "jnp.full(shape, value)",
            {"shape": tuple(array.shape), "value": array.flatten()[0].item()},
        )
    if array.ndim and torch.equal(array.flatten(), torch.arange(array.numel())):
        found = fill("jnp.arange(n)", {"n": array.numel()})
        return (
            found
            if array.ndim == 1
            else fill("x.reshape(*shape)", {"x": found, "shape": tuple(array.shape)})
        )
    if array.numel() > MOST:
        raise NotImplementedError(f"a constant of {array.numel()} numbers that no weights file has")
    return fill("jnp.array(x)", {"x": listed(array.tolist())})


def listed(value: Any) -> ast.expr:
    """Nested lists of numbers."""
    if isinstance(value, list):
        return ast.List([listed(x) for x in value], ast.Load())
    return expression(value)
