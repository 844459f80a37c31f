"""What a parameter or a constant holds before weights are loaded."""

from __future__ import annotations

import ast
from typing import Any

import torch

from tojax.flax.codegen.author.constructors import constructors_of
from tojax.flax.codegen.author.source_lines import class_trees
from tojax.flax.codegen.module.layers import marked
from tojax.flax.codegen.python.constant_patterns import told
from tojax.flax.codegen.python.templates import expression, fill

INITIAL = {
    "ones_": "jnp.ones(shape)",
    "zeros_": "jnp.zeros(shape)",
    "normal_": "rngs.params.normal(shape) * {std}",
    "trunc_normal_": "rngs.params.truncated_normal(-2, 2, shape) * {std}",
    "xavier_uniform_": "nnx.initializers.xavier_uniform()(rngs.params(), shape)",
    "xavier_normal_": "nnx.initializers.xavier_normal()(rngs.params(), shape)",
    "kaiming_uniform_": "nnx.initializers.he_uniform()(rngs.params(), shape)",
    "kaiming_normal_": "nnx.initializers.he_normal()(rngs.params(), shape)",
}
MOST = 256  # numbers that a file spells out
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32, torch.bfloat16: torch.float32}


def initializer(value: Any, module: Any, name: str) -> str:
    """How a bare parameter is initialised: as its author does, or else by what it holds."""
    if (said := _said(module, name)) is not None:
        return said
    if bool((value == 1).all()):
        return "jnp.ones(shape)"
    if bool((value == 0).all()):
        return "jnp.zeros(shape)"
    return "rngs.params.normal(shape) * 0.02"


def _said(module: Any, name: str) -> str | None:
    """What the author makes the parameter with: a new array, or what ``nn.init`` puts into it."""
    cls = module.__class__
    found: str | None = None
    given = [x for constructor in constructors_of(cls) for x in constructor.made(name)]
    for x in (part for whole in given for part in ast.walk(whole)):
        match x:
            case ast.Call(func=ast.Attribute(attr="ones" | "zeros" as new)):
                found = f"jnp.{new}(shape)"
    for x in (part for tree in class_trees(cls) for part in ast.walk(tree)):
        match x:
            case ast.Call(func=ast.Attribute(attr=how), args=[ast.Attribute(attr=attr), *_]):
                if attr == name and how in INITIAL:
                    found = INITIAL[how].format(std=_spread(x))
    return found


def _spread(call: ast.Call) -> Any:
    """The standard deviation that an initialiser was given: its third argument, 1 by default."""
    given = [k.value for k in call.keywords if k.arg == "std"] + call.args[2:3]
    if not given:
        return 1.0
    return given[0].value if isinstance(given[0], ast.Constant) else 0.02


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
