"""An exported program's graphs as one, without writes and wrapped regions."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import torch
from torch import fx

from tojax.flax.codegen.graph.functionalize import Versions, packet, writes, written_by
from tojax.flax.codegen.graph.views import memory, shares
from tojax.flax.codegen.python.sizes import symbolic

IGNORED = {"aten._assert_tensor_metadata", "aten._assert_scalar", "aten.sym_constrain_range"}
SAME = {"aten.contiguous", "aten.alias", "aten.lift_fresh_copy", "aten.type_as"}
RESHAPES = {"aten.view", "aten.reshape", "aten.expand", "aten._unsafe_view", "aten.flatten"}
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
TRACEPOINT = "_export_tracepoint"  # torch leaves those of submodules that it wraps
WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


def flattened(root: fx.GraphModule) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """One graph without writes, regions without gradient or with autocast where they were called;
    and its nodes by their old names.
    """
    copier = _Copier(_written(root))
    copier.graph.output(copier.copy(root, None, False))
    return copier.graph, copier.known


class _Copier:
    def __init__(self, written: set[Any]) -> None:
        self.graph = fx.Graph()
        self.written = written
        self.known: dict[str, fx.Node] = {}
        self.versions = Versions(self.graph)
        self.calls: Counter[str] = Counter()  # of submodules, in wrapped regions

    def copy(self, part: fx.GraphModule, inputs, frozen: bool):
        """Copies a graph's nodes; gives its outputs."""
        env: dict[fx.Node, Any] = {}
        values = iter(inputs or ())
        now = lambda n: self.versions.now(env[n]) if isinstance(env[n], fx.Node) else env[n]
        look = lambda x: fx.node.map_arg(x, now)
        for node in part.graph.nodes:
            name = packet(node)
            self.versions.at(node)
            if node.op == "placeholder":
                env[node] = self.graph.node_copy(node) if inputs is None else next(values)
            elif node.op == "output":
                return look(node.args[0])
            elif node.op == "get_attr":
                env[node] = getattr(part, node.target)
                continue
            elif name.startswith(WRAPPERS):
                inner, rest = _wrapped(node)
                mute = frozen or (name.startswith(WRAPPERS[0]) and not node.args[0])
                env[node] = self.copy(env[inner], [look(x) for x in rest], mute)
                continue
            elif name == TRACEPOINT:
                self._counted(node)
                env[node] = tuple(look(x) for x in node.args)
                continue
            elif node.target is operator.getitem and isinstance(
                env.get(node.args[0]), (tuple, list)
            ):
                env[node] = env[node.args[0]][node.args[1]]
            elif _same(node):
                env[node] = self._copied(node, look(node.args[0]))
            elif writes(node):
                given = look(node.args), look(dict(node.kwargs))
                env[node] = self.versions.functional(node, *given, frozen)
            elif name not in IGNORED:
                env[node] = self.graph.node_copy(node, now)
                env[node].meta = dict(node.meta) | ({"tojax_frozen": True} if frozen else {})
                self._numbered(env[node])
                self.versions.noted(env[node])
            self.known[node.name] = env.get(node)
        raise AssertionError("a graph without output")

    def _copied(self, node: fx.Node, value: fx.Node) -> fx.Node:
        """What hands its input on: a node of its own where one of both is written to later."""
        kept = shares(node, node.args[0]) or not {memory(node), memory(value)} & self.written
        if kept or packet(node) == "aten.lift_fresh_copy":
            return value
        found = self.graph.call_function(torch.ops.aten.clone.default, (value,))
        found.meta = dict(node.meta)
        return found

    def _counted(self, tracepoint: fx.Node) -> None:
        """Another call of a submodule begins."""
        if tracepoint.kwargs["kind"] == "module_call_inputs":
            self.calls[str(tracepoint.kwargs["path"]).removeprefix("_export_root.")] += 1

    def _numbered(self, node: fx.Node) -> None:
        """Tells second calls and later ones apart, as torch does outside of wrapped regions."""
        again = {path: n for path, n in self.calls.items() if n > 1}
        if again and (stack := node.meta.get("nn_module_stack")):
            node.meta["nn_module_stack"] = {
                key: (f"{path}@{again[path] - 1}" if path in again else path, kind)
                for key, (path, kind) in stack.items()
            }


def _written(root: fx.GraphModule) -> set[Any]:
    """The memory of everything that is written to."""
    graphs = [x.graph for x in root.modules() if isinstance(x, fx.GraphModule)]
    return {memory(written_by(n)) for g in graphs for n in g.nodes if writes(n)} - {None}


def _same(node: fx.Node) -> bool:
    """Whether an operator only hands its input on; 64 bits are JAX's 32."""
    name = packet(node)
    if name in RESHAPES:
        before, after = (x.meta["val"].shape for x in (node.args[0], node))
        return [*map(symbolic, before)] == [*map(symbolic, after)]
    if name not in SAME and name != "aten.to":
        return False
    before, after = (
        NARROW.get(x, x) for x in (node.args[0].meta["val"].dtype, node.meta["val"].dtype)
    )
    return before == after


def _wrapped(node: fx.Node) -> tuple[fx.Node, list]:
    """(the region, its inputs)."""
    place = next(
        i for i, x in enumerate(node.args) if isinstance(x, fx.Node) and x.op == "get_attr"
    )
    return node.args[place], list(node.args[place + 1 :])
