"""Parts of an array that share its memory: what each takes, and how a new part is put back."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

from tojax.flax.codegen.python.sizes import symbolic

aten = torch.ops.aten
RESHAPED = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "ravel", "unsqueeze"}
RESHAPED |= {"squeeze", "view_as", "reshape_as", "expand"}  # torch writes to no repeated number
EXCHANGED = {"transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT"}  # twice is nothing
TURNED = EXCHANGED | {"permute", "movedim", "moveaxis"}
DIVIDED = {"chunk", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split"}
New = Callable[..., fx.Node]


class Take(NamedTuple):
    """An operator that takes a part of its first argument."""

    target: Any
    args: tuple
    node: fx.Node

    @property
    def name(self) -> str:
        """``aten.slice.Tensor`` -> ``slice``."""
        return str(self.target).split(".")[1] if "." in str(self.target) else ""


def memory(node: Any) -> Any:
    """What tells the memory of an array from that of others; None for what is no array."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def shares(one: Any, other: Any) -> bool:
    """Whether two arrays lie in one memory."""
    return memory(one) is not None and memory(one) == memory(other)


def base_of(node: fx.Node) -> fx.Node | None:
    """The array of which a node is a part, as its operator has it."""
    whole = node
    while whole.target is operator.getitem:
        whole = whole.args[0]
    return next((x for x in whole.all_input_nodes if shares(x, node)), None)


def take_of(node: fx.Node) -> Take | None:
    """How a part is taken of its base; None where that has no name here."""
    if node.target is operator.getitem:
        return _of_several(node)
    if not node.args or not shares(node, node.args[0]):
        return None
    if Take(node.target, (), node).name == "narrow":
        dim, start, length = _sizes(node.args[1:])
        return Take(aten.slice.Tensor, (dim, start, start + length), node)
    named = list(_bound(node).values())[1:]
    return Take(node.target, tuple(named), node)


def _of_several(node: fx.Node) -> Take | None:
    """One of the parts into which an operator divides an array, as if it were taken alone."""
    whole, place = node.args
    name, parts = Take(whole.target, (), whole).name, whole.meta["val"]
    if name == "unbind":
        return Take(aten.select.int, (_bound(whole)["dim"], place), node)
    if name not in DIVIDED:
        return None
    dim = _bound(whole)["dim"]
    sizes = [x.shape[dim] for x in parts]
    start = sum(sizes[:place])
    return Take(aten.slice.Tensor, (dim, start, start + sizes[place]), node)


def _bound(node: fx.Node) -> dict[str, Any]:
    """The arguments by the schema's names."""
    names = [x.name for x in node.target._schema.arguments]
    defaults = {x.name: x.default_value for x in node.target._schema.arguments}
    return defaults | dict(zip(names, node.args)) | dict(node.kwargs)


def _sizes(values: tuple) -> list[Any]:
    return [x.meta["val"] if isinstance(x, fx.Node) else x for x in values]


def put(new: New, whole: fx.Node, take: Take, part: fx.Node) -> fx.Node | None:
    """The whole with this part of it replaced; None where that cannot be said.

    ``new(target, args, like)`` makes a node.
    """
    name, args = take.name, take.args
    if whole.meta["val"].dtype != part.meta["val"].dtype:
        return None
    if name in ("slice", "select", "diagonal"):
        scatter = getattr(aten, f"{name}_scatter").default
        return new(scatter, (whole, part, *args), whole)
    if name in EXCHANGED:
        return new(take.target, (part, *args), whole)
    if name in TURNED:
        order = _order(take, whole.meta["val"].ndim)
        return new(aten.permute.default, (part, [order.index(i) for i in range(len(order))]), whole)
    if name in RESHAPED:
        return new(aten.reshape.default, (part, list(whole.meta["val"].shape)), whole)
    if name == "detach" and part.meta["val"].is_floating_point():
        return through(new, whole, part)
    return part if _all_of_it(whole, take.node) else None


def _order(take: Take, rank: int) -> list[int]:
    """The dimensions of the whole in the order that a part has them in."""
    told = torch.empty([*range(2, rank + 2)], device="meta")  # by their sizes
    return [size - 2 for size in take.target(told, *take.args).shape]


def _all_of_it(whole: fx.Node, part: fx.Node) -> bool:
    """Whether a part is the whole by another name."""

    def lies(node: fx.Node) -> list[Any]:
        x = node.meta["val"]
        return [*map(symbolic, (*x.shape, *x.stride(), x.storage_offset())), x.ndim, x.dtype]

    return lies(whole) == lies(part)


def through(new: New, whole: fx.Node, part: fx.Node) -> fx.Node:
    """The numbers of a part with the gradient of what autograd did not see being replaced."""
    still, before = (new(aten.detach.default, (x,), whole) for x in (part, whole))
    nothing = new(aten.sub.Tensor, (whole, before), whole)
    return new(aten.add.Tensor, (still, nothing), whole)
