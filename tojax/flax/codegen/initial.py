"""What a parameter or a constant holds before weights are loaded."""

from __future__ import annotations

import ast
from typing import Any

import torch

from tojax.flax.codegen.layers import marked
from tojax.flax.codegen.tables import told
from tojax.flax.codegen.template import expression, fill

MOST = 256  # numbers that a file spells out
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32, torch.bfloat16: torch.float32}


def initializer(value: Any) -> str:
    """How a bare parameter is initialised, by what it holds: ones, zeros, or normal numbers."""
    if bool((value == 1).all()):
        return "jnp.ones(shape)"
    if bool((value == 0).all()):
        return "jnp.zeros(shape)"
    return "rngs.params.normal(shape) * 0.02"


def buffer(array: Any, saved: bool, style: Any) -> ast.expr:
    """What holds a constant; a table that no expression gives is one of the weights.

    Raises:
      NotImplementedError: there is no expression, and no file of weights has it either.
    """
    try:
        return style.table(marked(constant(array)))
    except NotImplementedError:
        if not saved:
            raise
    return style.buffer(tuple(array.shape), array.dtype)


def constant(array: Any) -> ast.expr:
    """The values of a constant."""
    if array.numel() and bool((array == array.flatten()[0]).all()):
        return fill(
            "jnp.full(shape, value)",
            {"shape": tuple(array.shape), "value": array.flatten()[0].item()},
        )
    array = array.detach().cpu()
    narrow = NARROW.get(array.dtype, array.dtype)
    if array.numel() > 4 and (text := told(array.to(narrow).numpy())):
        return ast.parse(text, mode="eval").body
    if array.numel() > MOST:
        raise NotImplementedError(f"a constant of {array.numel()} numbers that no weights file has")
    return fill("jnp.array(x)", {"x": listed(array.tolist())})


def listed(value: Any) -> ast.expr:
    """Nested lists of numbers."""
    if isinstance(value, list):
        return ast.List([listed(x) for x in value], ast.Load())
    return expression(value)
