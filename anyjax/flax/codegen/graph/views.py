"""Views: arrays that share memory, how each is taken of its base, and how it is written back."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

from anyjax.flax.codegen.python.sizes import symbolic

aten = torch.ops.aten
RESHAPES = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "ravel", "unsqueeze"}
RESHAPES |= {"squeeze", "view_as", "reshape_as", "expand"}  # torch writes to no repeated number
SWAPS = {"transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT"}  # twice is nothing
PERMUTATIONS = SWAPS | {"permute", "movedim", "moveaxis"}
SPLITS = {"chunk", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split"}
Create = Callable[..., fx.Node]


class Take(NamedTuple):
    """An operator that takes a view of its first argument."""

    target: Any
    args: tuple
    node: fx.Node

    @property
    def name(self) -> str:
        """``aten.slice.Tensor`` -> ``slice``."""
        return str(self.target).split(".")[1] if "." in str(self.target) else ""


def memory(node: object) -> Any:
    """Returns a key for the memory of an array; None for what has none."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    try:
        return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
    except NotImplementedError:  # an array inside of torch.vmap
        return None


def shares(a: object, b: object) -> bool:
    """Returns whether two arrays lie in one memory."""
    return memory(a) is not None and memory(a) == memory(b)


def base_of(node: fx.Node) -> fx.Node | None:
    """Returns the array of its operator's arguments that a node is a view of."""
    producer = node
    while producer.target is operator.getitem:
        producer = producer.args[0]
    return next((x for x in producer.all_input_nodes if shares(x, node)), None)


def take_of(node: fx.Node) -> Take | None:
    """Returns how a view is taken of its base; None where no operator says it."""
    if node.target is operator.getitem:
        return _take_of_piece(node)
    if not hasattr(node.target, "_schema") or not node.args or not shares(node, node.args[0]):
        return None  # what torch.vmap does to its arguments is no operator
    if Take(node.target, (), node).name == "narrow":
        dim, start, length = _sizes(node.args[1:])
        return Take(aten.slice.Tensor, (dim, start, start + length), node)
    arguments = list(_bound(node).values())[1:]
    return Take(node.target, tuple(arguments), node)


def _take_of_piece(node: fx.Node) -> Take | None:
    """Returns how one piece of a split array would be taken alone."""
    divided, place = node.args
    name, pieces = Take(divided.target, (), divided).name, divided.meta["val"]
    if name == "unbind":
        return Take(aten.select.int, (_bound(divided)["dim"], place), node)
    if name not in SPLITS:
        return None
    dim = _bound(divided)["dim"]
    sizes = [x.shape[dim] for x in pieces]
    start = sum(sizes[:place])
    return Take(aten.slice.Tensor, (dim, start, start + sizes[place]), node)


def _bound(node: fx.Node) -> dict[str, Any]:
    """Returns the arguments by the schema's names."""
    names = [x.name for x in node.target._schema.arguments]
    defaults = {x.name: x.default_value for x in node.target._schema.arguments}
    return defaults | dict(zip(names, node.args)) | dict(node.kwargs)


def _sizes(values: tuple) -> list[Any]:
    return [x.meta["val"] if isinstance(x, fx.Node) else x for x in values]


def put(new: Create, base: fx.Node, take: Take, view: fx.Node) -> fx.Node | None:
    """Returns the base with this view of it replaced; None where no operator does that.

    ``new(target, args, like)`` makes a node.
    """
    name, args = take.name, take.args
    if base.meta["val"].dtype != view.meta["val"].dtype:
        return None
    if name in ("slice", "select", "diagonal"):
        scatter = getattr(aten, f"{name}_scatter").default
        return new(scatter, (base, view, *args), base)
    if name in SWAPS:
        return new(take.target, (view, *args), base)
    if name in PERMUTATIONS:
        order = _dims_in_view(take, base.meta["val"].ndim)
        return new(aten.permute.default, (view, [order.index(i) for i in range(len(order))]), base)
    if name in RESHAPES:
        return new(aten.reshape.default, (view, list(base.meta["val"].shape)), base)
    if name == "detach" and view.meta["val"].is_floating_point():
        return through(new, base, view)
    return view if _is_full_view(base, take.node) else None


def _dims_in_view(take: Take, rank: int) -> list[int]:
    """Returns the base's dimensions in the order of the view."""
    probe = torch.empty([*range(2, rank + 2)], device="meta")  # by their sizes
    return [size - 2 for size in take.target(probe, *take.args).shape]


def _is_full_view(base: fx.Node, view: fx.Node) -> bool:
    """Returns whether a view is the base by another name."""

    def lies(node: fx.Node) -> list[Any]:
        x = node.meta["val"]
        return [*map(symbolic, (*x.shape, *x.stride(), x.storage_offset())), x.ndim, x.dtype]

    return lies(base) == lies(view)


def through(new: Create, base: fx.Node, value: fx.Node) -> fx.Node:
    """Returns ``value`` with the gradient of ``base``: autograd did not see the write."""
    detached_value, detached_base = (new(aten.detach.default, (x,), base) for x in (value, base))
    zero = new(aten.sub.Tensor, (base, detached_base), base)
    return new(aten.add.Tensor, (detached_value, zero), base)
