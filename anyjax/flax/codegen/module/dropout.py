"""Dropout by a function: the class gets a layer of Flax, so that training mode has it."""

from __future__ import annotations

import ast

import torch
from torch import fx

from anyjax.flax.codegen.graph.dropout_rates import rate_of
from anyjax.flax.codegen.module.body import Body
from anyjax.flax.codegen.module.call_kinds import Style
from anyjax.flax.codegen.module.layers import Layer, positional
from anyjax.flax.codegen.python.syntax import free_name
from anyjax.flax.codegen.python.templates import attribute


def dropout_call(node: fx.Node, body: Body, style: Style) -> ast.expr:
    """Returns ``F.dropout`` as the call of a layer."""
    x, rate = body.value(node.args[0]), rate_of(node)
    if not rate:
        return x
    call = dropout_layer_call(rate, node, body, style)
    return ast.Call(call.func, [x], call.keywords)


def dropout_layer_call(rate: float, node: fx.Node, body: Body, style: Style) -> ast.Call:
    """Returns the call of a dropout layer without its input; adds the layer to the class."""
    layer = style.layer(Layer("Dropout", positional(rate=rate)))
    name = _attribute_name(rate, body)
    same_code = lambda x: isinstance(x, ast.AST) and ast.unparse(x) == ast.unparse(layer)
    name = free_name(name, {k for k, x in body.fields.items() if not same_code(x)})
    body.fields[name] = layer
    return ast.Call(attribute(name), [], style.layer_flags("Dropout"))


def _attribute_name(rate: float, body: Body) -> str:
    """Returns the author's attribute for the rate, if exactly one has it, or ``dropout``."""
    block, module = body.block, body.block.module
    children = {x.path.rpartition(".")[2] for x in block.children()}
    layers = {k: x.p for k, x in module.named_children() if isinstance(x, torch.nn.Dropout)}
    numbers = {k: x for k, x in vars(module).items() if "drop" in k and isinstance(x, float)}
    candidates = [k for k, x in (layers | numbers).items() if x == rate and k not in children]
    return candidates[0] if len(candidates) == 1 else "dropout"
