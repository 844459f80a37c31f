"""An exported program as one graph, without in-place writes and without wrapped regions."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import torch
from torch import fx

from anyjax.flax.codegen.graph.functionalize import Versions, packet, writes, written_by
from anyjax.flax.codegen.graph.views import memory, shares
from anyjax.flax.codegen.python.sizes import symbolic

IGNORED = {"aten._assert_tensor_metadata", "aten._assert_scalar", "aten.sym_constrain_range"}
SAME = {"aten.contiguous", "aten.alias", "aten.lift_fresh_copy", "aten.type_as"}
RESHAPES = {"aten.view", "aten.reshape", "aten.expand", "aten._unsafe_view", "aten.flatten"}
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
TRACEPOINT = "_export_tracepoint"  # torch leaves tracepoints of submodules that it wraps
WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


def flattened(root: fx.GraphModule) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """Inlines regions without gradients and with autocast, and removes writes.

    Returns the graph, and its nodes by their names in the program.
    """
    copier = _Copier(_written_memory(root))
    copier.graph.output(copier.copy(root, None, False))
    return copier.graph, copier.by_name


class _Copier:
    """Copies graphs into one, with what is written to replaced by its present value."""

    def __init__(self, written: set[int]) -> None:
        self.graph = fx.Graph()
        self.written = written
        self.by_name: dict[str, fx.Node] = {}
        self.versions = Versions(self.graph)
        self.calls: Counter[str] = Counter()  # of submodules, in wrapped regions

    def copy(self, subgraph: fx.GraphModule, inputs, frozen: bool):
        """Copies a graph's nodes; returns its outputs."""
        env: dict[fx.Node, Any] = {}
        values = iter(inputs or ())

        def present_value(node: fx.Node) -> Any:
            copied = env[node]
            return self.versions.current(copied) if isinstance(copied, fx.Node) else copied

        lookup = lambda x: fx.node.map_arg(x, present_value)
        for node in subgraph.graph.nodes:
            name = packet(node)
            self.versions.set_origin(node)
            if node.op == "placeholder":
                env[node] = self.graph.node_copy(node) if inputs is None else next(values)
            elif node.op == "output":
                return lookup(node.args[0])
            elif node.op == "get_attr":
                env[node] = getattr(subgraph, node.target)
                continue
            elif name.startswith(WRAPPERS):
                inner, arguments = _region_and_inputs(node)
                ends_gradients = frozen or (name.startswith(WRAPPERS[0]) and not node.args[0])
                env[node] = self.copy(env[inner], [lookup(x) for x in arguments], ends_gradients)
                continue
            elif name == TRACEPOINT:
                self._count_call(node)
                env[node] = tuple(lookup(x) for x in node.args)
                continue
            elif node.target is operator.getitem and isinstance(
                env.get(node.args[0]), (tuple, list)
            ):
                env[node] = env[node.args[0]][node.args[1]]
            elif _is_identity(node):
                env[node] = self._unwrap_identity(node, lookup(node.args[0]))
            elif writes(node):
                operands = lookup(node.args), lookup(dict(node.kwargs))
                env[node] = self.versions.out_of_place(node, *operands, frozen)
            elif name not in IGNORED:
                env[node] = self.graph.node_copy(node, present_value)
                env[node].meta = dict(node.meta) | ({"anyjax_frozen": True} if frozen else {})
                self._number_calls(env[node])
                self.versions.record_view(env[node])
            self.by_name[node.name] = env.get(node)
        raise AssertionError("a graph without output")

    def _unwrap_identity(self, node: fx.Node, value: fx.Node) -> fx.Node:
        """Returns the input of an identity; a clone if one of the two is written to later."""
        is_plain = shares(node, node.args[0]) or not {memory(node), memory(value)} & self.written
        if is_plain or packet(node) == "aten.lift_fresh_copy":
            return value
        clone = self.graph.call_function(torch.ops.aten.clone.default, (value,))
        clone.meta = dict(node.meta)
        return clone

    def _count_call(self, tracepoint: fx.Node) -> None:
        """Counts another call of a submodule."""
        if tracepoint.kwargs["kind"] == "module_call_inputs":
            self.calls[str(tracepoint.kwargs["path"]).removeprefix("_export_root.")] += 1

    def _number_calls(self, node: fx.Node) -> None:
        """Numbers second and later calls, as torch does outside of wrapped regions."""
        repeated = {path: n for path, n in self.calls.items() if n > 1}
        if repeated and (stack := node.meta.get("nn_module_stack")):
            node.meta["nn_module_stack"] = {
                key: (f"{path}@{repeated[path] - 1}" if path in repeated else path, kind)
                for key, (path, kind) in stack.items()
            }


def _written_memory(root: fx.GraphModule) -> set[int]:
    """Returns the memory of everything that is written to."""
    graphs = [x.graph for x in root.modules() if isinstance(x, fx.GraphModule)]
    return {memory(written_by(n)) for g in graphs for n in g.nodes if writes(n)} - {None}


def _is_identity(node: fx.Node) -> bool:
    """Returns whether an operator returns its input; 64 bits count as JAX's 32."""
    name = packet(node)
    if name in RESHAPES:
        source, target = (x.meta["val"].shape for x in (node.args[0], node))
        return [*map(symbolic, source)] == [*map(symbolic, target)]
    if name not in SAME and name != "aten.to":
        return False
    dtypes = {x.meta["val"].dtype for x in (node.args[0], node)}
    return len({NARROW.get(x, x) for x in dtypes}) == 1


def _region_and_inputs(node: fx.Node) -> tuple[fx.Node, list]:
    """Returns the wrapped region and its inputs."""
    is_region = lambda x: isinstance(x, fx.Node) and x.op == "get_attr"
    index = next(i for i, x in enumerate(node.args) if is_region(x))
    return node.args[index], list(node.args[index + 1 :])
