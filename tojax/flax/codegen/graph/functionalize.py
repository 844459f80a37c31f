"""Operators that write to their argument, as operators that give a new value."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from tojax.errors import Unsupported
from tojax.flax.codegen.author.source_lines import FRAME
from tojax.flax.codegen.graph.views import Take, base_of, put, take_of, through

aten = torch.ops.aten
ANSWERS = {"lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_xor"}
ANSWERS |= {"less", "less_equal", "greater", "greater_equal", "not_equal", "logical_not"}


def packet(node: fx.Node) -> str:
    """``aten.add_.Tensor`` -> ``aten.add_``."""
    return ".".join(str(node.target).split(".")[:2])


def writes(node: fx.Node) -> bool:
    """Whether an operator writes to its first argument, or to ``out``."""
    return written_by(node) is not None


def written_by(node: fx.Node) -> fx.Node | None:
    """What an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments:
        return None
    if _written(schema.arguments[0]):
        return node.args[0]
    return node.kwargs.get("out") if any(_written(x) for x in schema.arguments) else None


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


class View(NamedTuple):
    """A part of something: how it is taken, of what, and how that was then."""

    take: Take | None
    base: fx.Node
    then: fx.Node


class Versions:
    """The present value of everything that was written to, while a graph is copied."""

    def __init__(self, graph: fx.Graph):
        self.graph = graph
        self.latest: dict[fx.Node, fx.Node] = {}
        self.views: dict[fx.Node, View] = {}
        self.lost: dict[fx.Node, tuple[str, fx.Node]] = {}  # by a write that has no other way
        self.where: dict[str, Any] = {}  # in which call and line new nodes stand

    def at(self, node: fx.Node) -> None:
        """What is made from now on is made by this node."""
        self.where = {k: x for k in ("nn_module_stack", "stack_trace") if (x := node.meta.get(k))}

    def now(self, node: fx.Node) -> fx.Node:
        """A value as it is now; a part of what was written to is taken again.

        Raises:
          Unsupported: it was written to in a way that cannot be said.
        """
        while node in self.latest:
            node = self.latest[node]
        if node in self.lost:
            raise _refused(*self.lost[node])
        view = self.views.get(node)
        if view is None or (present := self.now(view.base)) is view.then:
            return node
        if view.take is None:
            raise _refused(packet(node), node)
        again = self._new(view.take.target, (present, *view.take.args), view.take.node)
        self.latest[node] = again
        self.views[again] = View(view.take, view.base, present)
        return again

    def noted(self, node: fx.Node) -> None:
        """Takes in what a node, which was copied, is a part of."""
        if (base := base_of(node)) is not None:
            self.views[node] = View(take_of(node), base, self.now(base))

    def write(self, old: fx.Node, new: fx.Node) -> None:
        """``new`` takes the place of ``old``, and its place in what ``old`` is a part of."""
        self.latest[old] = new
        if (view := self.views.get(old)) is not None:
            whole = self.now(view.base)
            all_of_it = put(self._new, whole, view.take, new) if view.take else None
            if all_of_it is None:
                self.lost[whole] = (packet(view.take.node if view.take else old), new)
                return
            self.write(whole, all_of_it)
            if all_of_it is not new:
                self.views[new] = View(view.take, view.base, all_of_it)

    def _new(self, target: Any, args: tuple, like: fx.Node, kwargs: Any = None) -> fx.Node:
        node = self.graph.call_function(target)
        node.args, node.kwargs = args, kwargs or {}  # among them sizes, which fx warns of
        node.meta = like.meta | self.where
        return node

    def functional(self, node: fx.Node, args: tuple, kwargs: dict, frozen: bool) -> fx.Node:
        """The operator without its underscore, and its result as the argument's present value.

        Without gradients autograd does not see the write: the argument's goes on as it was.

        Raises:
          Unsupported: there is no such operator.
        """
        kwargs = dict(kwargs)
        old = kwargs.pop("out", None)
        old = args[0] if old is None else old
        name = packet(node).removeprefix("aten.")
        if name == "copy_":
            new = self._as(args[1], old, node)
            if tuple(new.meta["val"].shape) != tuple(old.meta["val"].shape):
                new = self._new(aten.expand.default, (new, list(old.meta["val"].shape)), node)
        elif name == "fill_diagonal_" and old.meta["val"].ndim == 2 and not any(args[2:]):
            new = self._diagonal(old, args[1], node)
        else:
            new = self._new(_without_write(node, name), args, node, kwargs)
            if (own := _own_dtype(name, args, old)) != _dtype(old):
                new.meta["val"] = new.meta["val"].to(own)
                new = self._new(aten._to_copy.default, (new,), old, {"dtype": _dtype(old)})
        if frozen:
            return self._unseen(old, new)
        self.write(old, new)
        return new

    def _unseen(self, old: fx.Node, new: fx.Node) -> fx.Node:
        """Writes, without gradients, to an array of such a region or to one from outside."""
        whole = old
        while whole in self.views:
            whole = self.views[whole].base
        before = self.now(whole)
        self.write(old, new)
        if before.meta.get("tojax_frozen"):
            new.meta["tojax_frozen"] = True
        elif before.meta["val"].is_floating_point() and _differentiable(before):
            after = self.now(whole)
            self.write(after, through(self._new, before, after))
        return self.now(new)

    def _as(self, value: fx.Node, old: fx.Node, node: fx.Node) -> fx.Node:
        """A value in the kind of numbers of what it is written to."""
        if _dtype(value) == _dtype(old):
            return value
        new = self._new(aten._to_copy.default, (value,), node, {"dtype": _dtype(old)})
        new.meta["val"] = value.meta["val"].to(_dtype(old))
        return new

    def _diagonal(self, old: fx.Node, value: Any, node: fx.Node) -> fx.Node:
        """A matrix with this number on its diagonal."""
        taken = self._new(aten.diagonal.default, (old,), node)
        taken.meta["val"] = old.meta["val"].diagonal()
        filled = self._new(aten.fill.Scalar, (taken, value), taken)
        return self._new(aten.diagonal_scatter.default, (old, filled), old)


def _dtype(node: fx.Node) -> torch.dtype:
    return node.meta["val"].dtype


def _own_dtype(name: str, args: tuple, old: fx.Node) -> torch.dtype:
    """What the operator itself gives, where what it writes to does not decide."""
    if name.rstrip("_") in ANSWERS:
        return torch.bool
    arrays = [x.meta["val"] for x in args if isinstance(x, fx.Node)
              and isinstance(x.meta.get("val"), torch.Tensor)]  # fmt: skip
    found = _dtype(old)
    for x in arrays:
        if x.is_floating_point() and (x.ndim or not old.meta["val"].ndim):
            found = torch.promote_types(found, x.dtype)
    return found


def _differentiable(node: fx.Node) -> bool:
    """Whether a value depends on inputs, parameters or buffers of floats."""
    seen, left = {node}, [node]
    while left:
        one = left.pop()
        value = one.meta.get("val")
        if isinstance(value, torch.Tensor) and not value.is_floating_point():
            continue
        if one.op == "placeholder":
            return True
        more = [x for x in one.all_input_nodes if x not in seen]
        seen.update(more)
        left += more
    return False


def _without_write(node: fx.Node, name: str) -> Any:
    """``aten.add_.Tensor`` -> ``aten.add.Tensor``; ``aten.__iand__`` -> ``aten.__and__``."""
    overload = str(node.target).split(".")[2]
    if name.startswith("__i"):
        name = f"__{name[3:]}"
    elif name.endswith("_"):
        name = name[:-1]
    else:  # .out of add, .Tensor_out of pow
        overload = overload.removesuffix("out").removesuffix("_") or node.target._schema.name
    overloads = getattr(aten, name, None)
    if overloads is None:
        raise _refused(packet(node), node)
    if packet(node).endswith("_"):
        return getattr(overloads, overload, None) or overloads.default
    return getattr(overloads, overload, None) or _same_arguments(overloads, node)


def _same_arguments(overloads: Any, node: fx.Node) -> Any:
    """The overload that takes what another one takes beside ``out``."""
    taken = lambda x: [(a.name, str(a.type)) for a in x._schema.arguments if not _written(a)]
    each = (getattr(overloads, x) for x in overloads.overloads())
    same = [x for x in each if taken(x) == taken(node.target) and not any(
        map(_written, x._schema.arguments))]  # fmt: skip
    if not same:
        raise _refused(packet(node), node)
    return same[0]


def _refused(what: str, node: fx.Node) -> Unsupported:
    frames = FRAME.findall(node.meta.get("stack_trace") or "")
    return Unsupported(
        f"a write through {what} in Flax source",
        where=":".join(frames[-1]) if frames else "",
        why="JAX has no arrays that share memory, and no rule says what else this write changes",
        do="write to the array itself and not through a view of it, or choose by torch.where",
    )
