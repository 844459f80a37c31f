"""The initial values of parameters and constants, before weights are loaded."""

from __future__ import annotations

import ast
from typing import Any

import torch

from anyjax.flax.codegen.author.constructors import constructors_of
from anyjax.flax.codegen.author.source_lines import class_trees
from anyjax.flax.codegen.module.call_kinds import Style
from anyjax.flax.codegen.module.layers import with_table_hints
from anyjax.flax.codegen.python.constant_patterns import expression_for
from anyjax.flax.codegen.python.templates import expression, fill

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
MAX_NUMBERS = 256  # numbers that a file spells out
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32, torch.bfloat16: torch.float32}


def initializer(value: torch.Tensor, module: torch.nn.Module, name: str) -> str:
    """Returns the author's initializer of a bare parameter, or one that fits its value."""
    if (author_initializer := _author_initializer(module, name)) is not None:
        return author_initializer
    if bool((value == 1).all()):
        return "jnp.ones(shape)"
    if bool((value == 0).all()):
        return "jnp.zeros(shape)"
    return "rngs.params.normal(shape) * 0.02"


def _author_initializer(module: torch.nn.Module, name: str) -> str | None:
    """Returns how the author makes the parameter: a new array, or an ``nn.init`` function."""
    cls = module.__class__
    initial: str | None = None
    expressions = [
        x for constructor in constructors_of(cls) for x in constructor.expressions_for(name)
    ]
    for x in (node for expression_ in expressions for node in ast.walk(expression_)):
        match x:
            case ast.Call(func=ast.Attribute(attr="ones" | "zeros" as new)):
                initial = f"jnp.{new}(shape)"
    for x in (node for tree in class_trees(cls) for node in ast.walk(tree)):
        match x:
            case ast.Call(func=ast.Attribute(attr=how), args=[ast.Attribute(attr=attr), *_]):
                if attr == name and how in INITIAL:
                    initial = INITIAL[how].format(std=_std(x))
    return initial


def _std(call: ast.Call) -> Any:
    """Returns the standard deviation passed to an initializer, the third argument; 1 by default."""
    deviations = [k.value for k in call.keywords if k.arg == "std"] + call.args[2:3]
    if not deviations:
        return 1.0
    return deviations[0].value if isinstance(deviations[0], ast.Constant) else 0.02


def constant_holder(array: torch.Tensor, saved: bool, style: Style) -> ast.expr:
    """Returns the holder of a constant: an expression, or an array that comes with the weights.

    Raises:
      NotImplementedError: there is no expression, and the weights do not have it.
    """
    try:
        return style.table(with_table_hints(constant_expression(array)))
    except NotImplementedError:
        if not saved:
            raise
    return style.buffer(tuple(array.shape), array.dtype)


def constant_expression(array: torch.Tensor) -> ast.expr:
    """Returns an expression for the values of a constant."""
    if array.numel() and bool((array == array.flatten()[0]).all()):
        return fill(
            "jnp.full(shape, value)",
            {"shape": tuple(array.shape), "value": array.flatten()[0].item()},
        )
    array = array.detach().cpu()
    narrow = NARROW.get(array.dtype, array.dtype)
    if array.numel() > 4 and (text := expression_for(array.to(narrow).numpy())):
        return ast.parse(text, mode="eval").body
    if array.numel() > MAX_NUMBERS:
        raise NotImplementedError(f"a constant of {array.numel()} numbers that no weights file has")
    return fill("jnp.array(x)", {"x": number_list(array.tolist())})


def number_list(value: object) -> ast.expr:
    """Returns nested lists of numbers."""
    if isinstance(value, list):
        return ast.List([number_list(x) for x in value], ast.Load())
    return expression(value)
