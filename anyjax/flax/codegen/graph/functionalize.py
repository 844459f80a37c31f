"""In-place operators replaced by operators that return a new value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import fx

from anyjax.errors import Unsupported
from anyjax.flax.codegen.author.source_lines import line_of
from anyjax.flax.codegen.graph.views import Take, base_of, put, take_of, through

aten = torch.ops.aten
PREDICATES = {"lt", "le", "gt", "ge", "eq", "ne", "logical_and", "logical_or", "logical_xor"}
PREDICATES |= {"less", "less_equal", "greater", "greater_equal", "not_equal", "logical_not"}


def packet(node: fx.Node) -> str:
    """Returns ``aten.add_`` of ``aten.add_.Tensor``."""
    return ".".join(str(node.target).split(".")[:2])


def reached(start: fx.Node, following: Callable[[fx.Node], Iterable[fx.Node]]) -> set[fx.Node]:
    """Returns the nodes to which ``following`` leads from one node, in one step or several."""
    visited: set[fx.Node] = set()
    stack = [start]
    while stack:
        unvisited = [x for x in following(stack.pop()) if x not in visited]
        visited.update(unvisited)
        stack += unvisited
    return visited


def writes(node: fx.Node) -> bool:
    """Returns whether an operator writes to its first argument, or to ``out``."""
    return written_by(node) is not None


def written_by(node: fx.Node) -> fx.Node | None:
    """Returns the argument that an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments:
        return None
    if _is_written(schema.arguments[0]):
        return node.args[0]
    return node.kwargs.get("out") if any(_is_written(x) for x in schema.arguments) else None


def _is_written(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


class View(NamedTuple):
    """A view: how it is taken, of which base, and the version of the base that it was taken of."""

    take: Take | None
    base: fx.Node
    version: fx.Node


class Versions:
    """The present value of everything that was written to, while a graph is copied."""

    def __init__(self, graph: fx.Graph):
        self.graph = graph
        self.latest: dict[fx.Node, fx.Node] = {}
        self.views: dict[fx.Node, View] = {}
        self.lost: dict[fx.Node, tuple[str, fx.Node]] = {}  # by a write that has no other way
        self.origin: dict[str, Any] = {}  # in which call and line new nodes stand

    def set_origin(self, node: fx.Node) -> None:
        """Sets the node whose call and source line new nodes get."""
        self.origin = {k: x for k in ("nn_module_stack", "stack_trace") if (x := node.meta.get(k))}

    def current(self, node: fx.Node) -> fx.Node:
        """Returns the present value; a view of a changed array is taken again.

        Raises:
          Unsupported: it was written to in a way that JAX cannot express.
        """
        while node in self.latest:
            node = self.latest[node]
        if node in self.lost:
            raise _refused(*self.lost[node])
        view = self.views.get(node)
        if view is None or (base_now := self.current(view.base)) is view.version:
            return node
        if view.take is None:
            raise _refused(packet(node), node)
        retaken = self._create(view.take.target, (base_now, *view.take.args), view.take.node)
        self.latest[node] = retaken
        self.views[retaken] = View(view.take, view.base, base_now)
        return retaken

    def record_view(self, node: fx.Node) -> None:
        """Records which base a copied node is a view of."""
        if (base := base_of(node)) is not None:
            self.views[node] = View(take_of(node), base, self.current(base))

    def replace(self, old: fx.Node, new: fx.Node) -> None:
        """Replaces ``old`` by ``new``, in the base of ``old`` as well."""
        self.latest[old] = new
        if (view := self.views.get(old)) is not None:
            base = self.current(view.base)
            new_base = put(self._create, base, view.take, new) if view.take else None
            if new_base is None:
                self.lost[base] = (packet(view.take.node if view.take else old), new)
                return
            self.replace(base, new_base)
            if new_base is not new:
                self.views[new] = View(view.take, view.base, new_base)

    def _create(
        self, target: Callable, args: tuple, like: fx.Node, kwargs: dict | None = None
    ) -> fx.Node:
        node = self.graph.call_function(target)
        node.args, node.kwargs = args, kwargs or {}  # among them sizes, which fx warns of
        node.meta = like.meta | self.origin
        return node

    def out_of_place(self, node: fx.Node, args: tuple, kwargs: dict, frozen: bool) -> fx.Node:
        """Returns the out-of-place operator, whose result replaces the argument from now on.

        Autograd does not see a write without gradients: the argument keeps the gradient it had.

        Raises:
          Unsupported: there is no such operator.
        """
        kwargs = dict(kwargs)
        old = kwargs.pop("out", None)
        old = args[0] if old is None else old
        name = packet(node).removeprefix("aten.")
        if name == "copy_":
            new = self._cast(args[1], old, node)
            if tuple(new.meta["val"].shape) != tuple(old.meta["val"].shape):
                new = self._create(aten.expand.default, (new, list(old.meta["val"].shape)), node)
        elif name == "fill_diagonal_" and old.meta["val"].ndim == 2 and not any(args[2:]):
            new = self._filled_diagonal(old, args[1], node)
        else:
            new = self._create(_functional_overload(node, name), args, node, kwargs)
            if (result_dtype := _result_dtype(name, args, old)) != _dtype(old):
                new.meta["val"] = new.meta["val"].to(result_dtype)
                new = self._create(aten._to_copy.default, (new,), old, {"dtype": _dtype(old)})
        if frozen:
            return self._replace_without_gradient(old, new)
        self.replace(old, new)
        return new

    def _replace_without_gradient(self, old: fx.Node, new: fx.Node) -> fx.Node:
        """Replaces an array by its value after a write that autograd does not see."""
        base = old
        while base in self.views:
            base = self.views[base].base
        old_base = self.current(base)
        self.replace(old, new)
        if old_base.meta.get("anyjax_frozen"):
            new.meta["anyjax_frozen"] = True
        elif old_base.meta["val"].is_floating_point() and _differentiable(old_base):
            new_base = self.current(base)
            self.replace(new_base, through(self._create, old_base, new_base))
        return self.current(new)

    def _cast(self, value: fx.Node, old: fx.Node, node: fx.Node) -> fx.Node:
        """Returns a value in the dtype of what it is written to."""
        if _dtype(value) == _dtype(old):
            return value
        new = self._create(aten._to_copy.default, (value,), node, {"dtype": _dtype(old)})
        new.meta["val"] = value.meta["val"].to(_dtype(old))
        return new

    def _filled_diagonal(self, old: fx.Node, value: float, node: fx.Node) -> fx.Node:
        """Returns a matrix with this number on its diagonal."""
        diagonal = self._create(aten.diagonal.default, (old,), node)
        diagonal.meta["val"] = old.meta["val"].diagonal()
        filled = self._create(aten.fill.Scalar, (diagonal, value), diagonal)
        return self._create(aten.diagonal_scatter.default, (old, filled), old)


def _dtype(node: fx.Node) -> torch.dtype:
    return node.meta["val"].dtype


def _result_dtype(name: str, args: tuple, old: fx.Node) -> torch.dtype:
    """Returns the dtype of the operator's own result, before it is written to an array."""
    if name.rstrip("_") in PREDICATES:
        return torch.bool
    arrays = [x.meta["val"] for x in args if isinstance(x, fx.Node)
              and isinstance(x.meta.get("val"), torch.Tensor)]  # fmt: skip
    dtype = _dtype(old)
    for x in arrays:
        if x.is_floating_point() and (x.ndim or not old.meta["val"].ndim):
            dtype = torch.promote_types(dtype, x.dtype)
    return dtype


def _differentiable(node: fx.Node) -> bool:
    """Returns whether a value depends on inputs, parameters or buffers of floats."""

    def carries(x: fx.Node) -> bool:
        value = x.meta.get("val")
        return not isinstance(value, torch.Tensor) or value.is_floating_point()

    sources = reached(node, lambda x: x.all_input_nodes if carries(x) else ())
    return any(x.op == "placeholder" and carries(x) for x in {node, *sources})


def _functional_overload(node: fx.Node, name: str) -> Any:
    """Returns ``aten.add.Tensor`` for ``aten.add_.Tensor``, ``aten.__and__`` for
    ``aten.__iand__``.
    """
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
    return getattr(overloads, overload, None) or _overload_without_out(overloads, node)


def _overload_without_out(overloads: Any, node: fx.Node) -> Any:
    """Returns the overload with the same arguments, ``out`` left out."""
    signature = lambda x: [(a.name, str(a.type)) for a in x._schema.arguments if not _is_written(a)]
    overloads_ = (getattr(overloads, x) for x in overloads.overloads())
    matches = [x for x in overloads_ if signature(x) == signature(node.target) and not any(
        map(_is_written, x._schema.arguments))]  # fmt: skip
    if not matches:
        raise _refused(packet(node), node)
    return matches[0]


def _refused(what: str, node: fx.Node) -> Unsupported:
    return Unsupported(
        f"a write through {what} in Flax source",
        where=line_of(node),
        why="JAX has no arrays that share memory, and no rule says what else this write changes",
        do="write to the array itself and not through a view of it, or choose by torch.where",
    )
