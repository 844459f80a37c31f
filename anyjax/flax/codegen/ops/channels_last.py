"""The values that have their channels last, as Flax's convolutions want them."""

from __future__ import annotations

import ast
import operator
import re
from typing import Any

import torch
from torch import fx

from anyjax.flax.codegen.python.templates import fill, same_layout

WINDOWS = {
    *("batch_norm", "group_norm", "instance_norm"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
}
for _name in ("conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool"):
    WINDOWS |= {f"{_name}{n}d" for n in (1, 2, 3)}
for _name in ("upsample_nearest", "_upsample_nearest_exact"):
    WINDOWS |= {f"{_name}{n}d" for n in (1, 2, 3)}
REDUCTIONS = {"mean", "sum", "amax", "amin"}
WITH_DIM = REDUCTIONS | {"cat", "concat", "softmax", "log_softmax", "cumsum"}
WITH_DIM |= {"chunk", "split", "split_with_sizes"}
DROPOUT = {"dropout"}
TRANSPOSES = {"permute", "transpose", "swapaxes"}


def operation(node: fx.Node) -> str:
    """Returns ``conv2d`` for ``aten.conv2d.default``."""
    return str(node.target).split(".")[1].rstrip("_") if "." in str(node.target) else ""


def rank(node: fx.Node) -> int:
    """Returns the number of dimensions of a value."""
    return getattr(node.meta.get("val"), "ndim", 0)


def channels_last(nodes: list[fx.Node], inputs: list[fx.Node]) -> set[fx.Node]:
    """Returns the nodes whose values have channels last; inputs are transposed at once."""
    is_windowed_by = lambda node, user: operation(user) in WINDOWS and user.args[0] is node
    last = {x for x in inputs if rank(x) > 2 and any(is_windowed_by(x, user) for user in x.users)}
    for node in nodes:
        name = operation(node)
        operands = [x for x in node.all_input_nodes if rank(x) > 2]
        if name in WINDOWS and rank(node) > 2:
            last.add(node)
        elif name in same_layout | DROPOUT | WITH_DIM and any(x in last for x in operands):
            last |= {node} if _keeps_rank(node, operands) else set()
        elif node.target is operator.getitem and node.args[0] in last:
            last.add(node)
        elif name in TRANSPOSES and rank(node) > 2 and node.args[0] not in last:
            feeds_window = any(operation(user) in WINDOWS for user in node.users)
            if feeds_window and channels_moved_last(turn(node)) == [*range(rank(node))]:
                last.add(node)
    return last


def _keeps_rank(node: fx.Node, operands: list[fx.Node]) -> bool:
    """Returns whether the results have the rank of the operands, which may also be numbers."""
    several = isinstance(node.meta["val"], (list, tuple))
    if not several and rank(node) != max(map(rank, operands)):
        return False
    return all(rank(x) in (0, rank(operands[0])) for x in node.all_input_nodes)


def turn(node: fx.Node) -> list[int]:
    """Returns the dimensions of a permutation."""
    count = rank(node)
    dims = [*range(count)]
    if operation(node) == "permute":
        return [d % count for d in node.args[1]]
    first, second = (d % count for d in node.args[1:3])
    dims[first], dims[second] = second, first
    return dims


def channels_moved_last(dims: list[Any]) -> list[Any]:
    """Returns the entries of a list, one for each dimension, in the order with channels last."""
    return [dims[0], *dims[2:], dims[1]]


def moved_last(expr: ast.expr, node: fx.Node) -> ast.expr:
    """Returns a value as torch lays it out, transposed to channels last."""
    dims = channels_moved_last([*range(rank(node))])
    return fill("x.transpose(*dims)", {"x": expr, "dims": dims})


def place(dim: int, count: int) -> int:
    """Returns the place of a dimension when the channels are last."""
    dim %= count
    return dim if dim == 0 else count - 1 if dim == 1 else dim - 1


def in_order(node: fx.Node) -> bool:
    """Returns whether a reduction leaves dimensions whose order is the same in both layouts."""
    count = max(map(rank, node.all_input_nodes))
    dims = node.args[1] if len(node.args) > 1 else None
    if dims is None or not isinstance(dims, (list, tuple, int)):
        return True
    reduced = {d % count for d in (dims if isinstance(dims, (list, tuple)) else [dims])}
    return 1 in reduced or reduced >= set(range(2, count))


def without_batch(node: fx.Node) -> bool:
    """Returns whether a convolution or a pooling has no batch dimension."""
    dims = re.fullmatch(r".*(\d)d", operation(node))
    return operation(node) in WINDOWS and dims is not None and rank(node) != int(dims[1]) + 2


def shape(node: fx.Node, last: set[fx.Node]) -> list[Any]:
    """Returns a value's sizes as it is written."""
    sizes = list(node.meta["val"].shape) if isinstance(node.meta.get("val"), torch.Tensor) else []
    return channels_moved_last(sizes) if node in last else sizes
