"""Which values have their channels last, as Flax's convolutions want them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tojax.flax.codegen.ops import elementwise

WINDOWS = {
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    *(f"{name}{n}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
}
ALONG = {
    "cat",
    "concat",
    "softmax",
    "log_softmax",
    "mean",
    "sum",
    "amax",
    "amin",
    "cumsum",
    "chunk",
    "split",
    "split_with_sizes",
}
REDUCTIONS = {"mean", "sum", "amax", "amin"}
DROPOUT = {"dropout"}
TURNS = {"permute", "transpose", "swapaxes"}
PLAIN = set(elementwise.NAMES) | DROPOUT


def operation(node: fx.Node) -> str:
    """``aten.conv2d.default`` -> ``conv2d``."""
    return str(node.target).split(".")[1].rstrip("_") if "." in str(node.target) else ""


def rank(node: fx.Node) -> int:
    """How many dimensions a value has."""
    return getattr(node.meta.get("val"), "ndim", 0)


def channels_last(nodes: list[fx.Node], inputs: list[fx.Node]) -> set[fx.Node]:
    """The nodes whose values are written with channels last; inputs are turned at once."""
    window = lambda node, user: operation(user) in WINDOWS and user.args[0] is node
    found = {x for x in inputs if rank(x) > 2 and any(window(x, user) for user in x.users)}
    for node in nodes:
        name = operation(node)
        given = [x for x in node.all_input_nodes if rank(x) > 2]
        if name in WINDOWS and rank(node) > 2:
            found.add(node)
        elif name in PLAIN | ALONG and any(x in found for x in given):
            kept = rank(node) == max(map(rank, given)) or isinstance(
                node.meta["val"], (list, tuple)
            )
            if kept and all(rank(x) in (0, rank(given[0])) for x in node.all_input_nodes):
                found.add(node)
        elif node.target is operator.getitem and node.args[0] in found:
            found.add(node)
        elif name in TURNS and rank(node) > 2 and node.args[0] not in found:
            wanted = any(operation(user) in WINDOWS for user in node.users)
            found |= {node} if wanted and moved(turn(node)) == [*range(rank(node))] else set()
    return found


def turn(node: fx.Node) -> list[int]:
    """The dimensions of a permutation."""
    count = rank(node)
    dims = [*range(count)]
    if operation(node) == "permute":
        return [d % count for d in node.args[1]]
    one, other = (d % count for d in node.args[1:3])
    dims[one], dims[other] = other, one
    return dims


def moved(dims: list[Any]) -> list[Any]:
    """What belongs to dimensions, in the order with channels last."""
    return [dims[0], *dims[2:], dims[1]]


def place(dim: int, count: int) -> int:
    """Where a dimension is when the channels are last."""
    dim %= count
    return dim if dim == 0 else count - 1 if dim == 1 else dim - 1


def in_order(node: fx.Node) -> bool:
    """Whether a reduction leaves the other dimensions in one order in both layouts."""
    count = max(map(rank, node.all_input_nodes))
    dims = node.args[1] if len(node.args) > 1 else None
    if dims is None or not isinstance(dims, (list, tuple, int)):
        return True
    gone = {d % count for d in (dims if isinstance(dims, (list, tuple)) else [dims])}
    return 1 in gone or gone >= set(range(2, count))


def without_batch(node: fx.Node) -> bool:
    """Whether a convolution or a pooling has no batch dimension."""
    name = operation(node)
    return (
        name in WINDOWS
        and name.endswith("d")
        and name[-2].isdigit()
        and rank(node) != int(name[-2]) + 2
    )


def shape(node: fx.Node, last: set[fx.Node]) -> list[Any]:
    """A value's sizes as it is written."""
    sizes = list(node.meta["val"].shape) if isinstance(node.meta.get("val"), torch.Tensor) else []
    return moved(sizes) if node in last else sizes
