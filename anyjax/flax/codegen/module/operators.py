"""Operators as expressions, in the layout in which their values are written."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from anyjax.flax.codegen import ops  # noqa: F401  (ops fills the table)
from anyjax.flax.codegen.graph.functionalize import packet
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.module.steps import operands
from anyjax.flax.codegen.ops import channels_last
from anyjax.flax.codegen.python.sizes import Sizes
from anyjax.flax.codegen.python.templates import Call, ReadArguments, fill, swapped, table

# Where arrays are and how; hints for kernels; how gradients of embeddings are kept; sizes that
# the result's shape tells, and what a new array is only made like.
HARMLESS = {
    *("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "implicit"),
    *("stable", "sorted", "generator", "cudnn_enable", "cudnn_enabled", "enable_gqa", "momentum"),
    *("scale_grad_by_freq", "sparse"),
    *("size", "sizes", "output_size", "split_size", "split_sizes", "chunks", "sections", "self"),
}

Value = Callable[[fx.Node], ast.expr]


class Unwritable(NotImplementedError):
    """Raised for an operator that no row writes, with the node."""

    def __init__(self, what: str, node: fx.Node):
        super().__init__(what)
        self.node = node
        self.blocks: list[Any] = []  # in which it stands, the innermost first


class Operators:
    """Writes operators; ``last`` are the values that are written with channels last."""

    def __init__(self, graph: Graph):
        inputs = [n for n, (kind, _) in graph.roles.items() if kind == "input"]
        self.last = channels_last.channels_last(graph.nodes, inputs)
        self.gradient_ends = gradient_ends(graph)

    def expression(
        self, node: fx.Node, value: Value, sizes: Sizes, **overrides: ast.expr
    ) -> ast.expr:
        """Returns an operator by its row, with some arguments overridden.

        Raises:
          Unwritable: there is none, or it does not cover this.
        """
        name, row = channels_last.operation(node), table.get(packet(node))
        if name in channels_last.TRANSPOSES:
            return self.permuted(node, value(node.args[0]))
        if row is None:
            operator = node.target.__name__ if inspect.isfunction(node.target) else node.target
            raise Unwritable(f"{operator} has no row", node)
        if channels_last.without_batch(node):
            raise Unwritable(f"{name} of an input without a batch dimension", node)
        call = Call(
            node,
            ReadArguments(self.arguments(node, value, sizes) | overrides),
            sizes,
            node in self.last,
        )
        try:
            expr = fill(row, call.args) if isinstance(row, str) else row(call)
            refuse_unread(call)
            return expr
        except NotImplementedError as error:
            raise Unwritable(str(error), node) from error

    def arguments(self, node: fx.Node, value: Value, sizes: Sizes) -> dict[str, Any]:
        """Returns the arguments by name; values have channels last if the result has."""
        name, values = channels_last.operation(node), set(operands(node))
        along = name in channels_last.REDUCTIONS and any(x in self.last for x in values)
        along = along and channels_last.in_order(node)
        keeps_last, window = node in self.last or along, name in channels_last.WINDOWS

        def expression(n: fx.Node) -> ast.expr:
            if n not in values:
                return sizes(n.meta["val"])
            is_weight = window and n is not node.args[0]  # weights
            return value(n) if is_weight else self.in_layout(value(n), n, keeps_last)

        arguments: dict[str, Any] = {}
        for i, argument in enumerate(node.target._schema.arguments):
            default = argument.default_value
            read = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, default)
            arguments[argument.name] = fit_number(
                map_nodes(read, expression, sizes), argument, node
            )
        if keeps_last and name in channels_last.WITH_DIM and arguments.get("dim") is not None:
            count, dim = max(map(channels_last.rank, values)), arguments["dim"]
            is_list = isinstance(dim, list)
            places = [channels_last.place(d, count) for d in (dim if is_list else [dim])]
            arguments["dim"] = places if is_list else places[0]
        return arguments

    def in_layout(self, expr: ast.expr, node: fx.Node, last: bool) -> ast.expr:
        """Returns a value transposed to channels last or first, if it is not so already."""
        count = channels_last.rank(node)
        if count < 3 or (node in self.last) == last:
            return expr
        if count == 3:
            return swapped(expr, 1, 2)
        if last:
            return channels_last.moved_last(expr, node)
        dims = [0, count - 1, *range(1, count - 1)]
        return fill("x.transpose(*dims)", {"x": expr, "dims": dims})

    def permuted(self, node: fx.Node, expr: ast.expr) -> ast.expr:
        """Returns a permutation between values of either layout; often it is the identity."""
        count = channels_last.rank(node)
        stored = channels_last.channels_moved_last([*range(count)])
        dims = channels_last.turn(node)
        if node.args[0] in self.last:
            dims = [stored.index(d) for d in dims]
        if node in self.last:
            dims = channels_last.channels_moved_last(dims)
        moved = [i for i, d in enumerate(dims) if i != d]
        if not moved:
            return expr
        if len(moved) == 2:
            swap = moved == [count - 2, count - 1] and count > 2
            return fill("x.mT", {"x": expr}) if swap else swapped(expr, *moved)
        return fill("x.transpose(*dims)", {"x": expr, "dims": dims})


def gradient_ends(graph: Graph) -> set[fx.Node]:
    """Returns the nodes where gradients end: results of regions without gradients that depend on
    parameters or inputs.
    """
    live = {n for n, (kind, _) in graph.roles.items() if kind in ("param", "input")}
    for node in graph.nodes:
        value = node.meta.get("val")
        floats = not isinstance(value, torch.Tensor) or value.is_floating_point()
        if floats and any(x in live for x in node.all_input_nodes):
            live.add(node)
    inputs = {n for n in graph.roles if not getattr(n.meta.get("val"), "is_floating_point", bool)()}
    leave = lambda n: any(user not in graph.frozen for user in n.users)
    return {n for n in graph.frozen if n in live - inputs and leave(n)}


def refuse_unread(call: Call) -> None:
    """Refuses arguments that the row did not read and that differ from the schema's default.

    Raises:
      NotImplementedError: there is one, so that the written code would mean something else.
    """
    tensors = [x.meta["val"] for x in operands(call.node)]
    keeps_dtype = not tensors or tensors[0].dtype == getattr(call.out, "dtype", tensors[0].dtype)
    for argument in call.node.target._schema.arguments:
        name, default = argument.name, argument.default_value
        if name in call.args.seen | HARMLESS or (name == "dtype" and keeps_dtype):
            continue
        value = dict.__getitem__(call.args, name)
        if isinstance(value, ast.AST) or value != default:
            shown = ast.unparse(value) if isinstance(value, ast.AST) else value
            raise NotImplementedError(f"{call.node.target} with {name}={shown}")


def fit_number(value: Any, argument: torch.Argument, node: fx.Node) -> Any:
    """Returns a number that fits in 32 bits; a large integer among floats as a float.

    Raises:
      Unwritable: it does not fit.
    """
    numbers = str(argument.type) in ("number", "Optional[number]", "Tensor")
    if not numbers or type(value) is not int or -(2**31) <= value < 2**31:
        return value
    if node.meta["val"].is_floating_point():
        return float(value)
    raise Unwritable(f"the whole number {value}, which does not fit JAX's 32 bits", node)


def map_nodes(value: Any, expression: Callable, size: Callable | None = None) -> Any:
    """Returns an argument with its nodes as expressions, and sizes as well."""
    if isinstance(value, fx.Node):
        return expression(value)
    if isinstance(value, (list, tuple)):
        return [map_nodes(x, expression, size) for x in value]
    return size(value) if size and isinstance(value, torch.SymInt) else value
