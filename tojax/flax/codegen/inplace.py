"""Operators that write to their argument, as operators that give a new value."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

aten = torch.ops.aten
VIEWS = {
    "aten.slice",
    "aten.select",
    "aten.view",
    "aten.reshape",
    "aten.unsqueeze",
    "aten.transpose",
    "aten.permute",
    "aten.squeeze",
    "aten.expand",
    "aten.t",
    "aten.flatten",
    "aten.alias",
    "aten.diagonal",
    "aten.detach",
}


def packet(node: fx.Node) -> str:
    """``aten.add_.Tensor`` -> ``aten.add_``."""
    return ".".join(str(node.target).split(".")[:2])


def writes(node: fx.Node) -> bool:
    """Whether an operator writes to its first argument."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments:
        return False
    alias = schema.arguments[0].alias_info
    return alias is not None and alias.is_write


class View(NamedTuple):
    """A part of something: what took it, of what, and how that was then."""

    taken: fx.Node
    base: fx.Node
    then: fx.Node


class Versions:
    """The present value of everything that was written to, while a graph is copied."""

    def __init__(self, graph: fx.Graph):
        self.graph = graph
        self.latest: dict[fx.Node, fx.Node] = {}
        self.views: dict[fx.Node, View] = {}
        self.where: dict[str, Any] = {}  # in which call and line new nodes stand

    def at(self, node: fx.Node) -> None:
        """What is made from now on is made by this node."""
        self.where = {k: x for k in ("nn_module_stack", "stack_trace") if (x := node.meta.get(k))}

    def now(self, node: fx.Node) -> fx.Node:
        """A value as it is now; a part of what was written to is taken again."""
        while node in self.latest:
            node = self.latest[node]
        view = self.views.get(node)
        if view is None or (present := self.now(view.base)) is view.then:
            return node
        taken = view.taken
        again = self._new(taken.target, (present, *taken.args[1:]), taken.kwargs, taken)
        self.latest[node] = again
        self.views[again] = View(taken, view.base, present)
        return again

    def noted(self, node: fx.Node, base: fx.Node) -> None:
        """``node`` is a part of ``base``."""
        self.views[node] = View(node, base, self.now(base))

    def write(self, old: fx.Node, new: fx.Node) -> None:
        """``new`` takes the place of ``old``, and its place in what ``old`` is a part of."""
        self.latest[old] = new
        if (view := self.views.get(old)) is not None:
            whole = self.now(view.base)
            put = self._put(whole, view.taken, new)
            self.write(whole, put)
            if put is new:  # the part was all of it
                return
            self.views[new] = View(view.taken, view.base, put)

    def _put(self, whole: fx.Node, taken: fx.Node, new: fx.Node) -> fx.Node:
        """The whole with this part of it replaced."""
        name, args = packet(taken), taken.args[1:]
        if name == "aten.slice":
            return self._new(aten.slice_scatter.default, (whole, new, *args), {}, whole)
        if name == "aten.select":
            return self._new(aten.select_scatter.default, (whole, new, *args), {}, whole)
        if name in ("aten.transpose", "aten.t"):
            return self._new(taken.target, (new, *args), {}, whole)
        if name == "aten.permute":
            dims = args[0]
            return self._new(
                taken.target, (new, [dims.index(i) for i in range(len(dims))]), {}, whole
            )
        if name == "aten.detach" and new.meta["val"].is_floating_point():
            return self._through(whole, new)
        if name in ("aten.detach", "aten.alias"):
            return new
        return self._new(aten.reshape.default, (new, list(whole.meta["val"].shape)), {}, whole)

    def _through(self, whole: fx.Node, new: fx.Node) -> fx.Node:
        """The numbers of ``new`` with the gradient of what autograd did not see being replaced."""
        still, held = (self._new(aten.detach.default, (x,), {}, whole) for x in (new, whole))
        nothing = self._new(aten.sub.Tensor, (whole, held), {}, whole)
        return self._new(aten.add.Tensor, (still, nothing), {}, whole)

    def _new(self, target: Any, args: tuple, kwargs: dict, like: fx.Node) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        node.meta = like.meta | self.where
        return node

    def functional(self, node: fx.Node, args: tuple, kwargs: dict) -> fx.Node:
        """The operator without its underscore, and its result as the argument's present value."""
        old = args[0]
        name = packet(node).removeprefix("aten.")
        if name == "copy_":
            new = args[1]
            if tuple(new.meta["val"].shape) != tuple(old.meta["val"].shape):
                new = self._new(aten.expand.default, (new, list(old.meta["val"].shape)), {}, node)
        else:
            overloads = getattr(aten, name.removesuffix("_"))
            target = getattr(overloads, str(node.target).split(".")[2], None) or overloads.default
            new = self._new(target, args, kwargs, node)
        self.write(old, new)
        return new
