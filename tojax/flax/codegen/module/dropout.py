"""Dropout that a function does: the class gets a layer of Flax, so that training mode has it."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import fx

from tojax.flax.codegen.graph.dropout_rates import rate_of
from tojax.flax.codegen.module.layers import Layer, positional
from tojax.flax.codegen.python.templates import attribute


def dropped(node: fx.Node, body: Any, style: Any) -> ast.expr:
    """``F.dropout``"""
    x, rate = body.value(node.args[0]), rate_of(node)
    if not rate:
        return x
    call = dropping(rate, node, body, style)
    return ast.Call(call.func, [x], call.keywords)


def dropping(rate: float, node: fx.Node, body: Any, style: Any) -> ast.Call:
    """The call of such a layer, without what it takes."""
    layer = style.layer(Layer("Dropout", positional(rate=rate)))
    name = _called(rate, body)
    while name in body.fields and not _same(body.fields[name], layer):
        name += "_"
    body.fields[name] = layer
    return ast.Call(attribute(name), [], style.flags("Dropout"))


def _same(one: Any, other: ast.expr) -> bool:
    return isinstance(one, ast.AST) and ast.unparse(one) == ast.unparse(other)


def _called(rate: float, body: Any) -> str:
    """The author's attribute for the rate, where only one has it that is no layer of its own."""
    block, module = body.block, body.block.module
    own = {x.path.rpartition(".")[2] for x in block.children()}
    layers = {k: x.p for k, x in module.named_children() if isinstance(x, torch.nn.Dropout)}
    numbers = {k: x for k, x in vars(module).items() if "drop" in k and isinstance(x, float)}
    found = [k for k, x in (layers | numbers).items() if x == rate and k not in own]
    return found[0] if len(found) == 1 else "dropout"
