"""A module as one flat graph of torch operators, with the calls of its submodules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from anyjax.flax.codegen.graph.dropout_rates import restore_rates
from anyjax.flax.codegen.graph.flatten import flattened
from anyjax.flax.codegen.graph.functionalize import packet
from anyjax.flax.codegen.graph.grouped_query import without_repeated_heads
from anyjax.flax.codegen.graph.simplify_masks import MaskSimplifier
from anyjax.flax.codegen.graph.size_guards import Condition, conditions
from anyjax.flax.codegen.graph.torch_export import program_of


@dataclass(frozen=True)
class Graph:
    """A flat graph of operators with the inputs, constants and calls of ``torch.export``.

    Attributes:
      nodes: operators in order, those of wrapped regions included.
      roles: of each placeholder: ("param" | "buffer" | "constant", its name), ("input", name).
      signatures: how each submodule was called, by path; None where that is not known.
      outputs: the tree of the result, with nodes as leaves.
      constants: values of the constants.
      by_name: nodes by their names in the signatures.
      frozen: nodes whose results get no gradient.
      ranges: values that count positions, which are written again at each use.
      fixed: inputs that have to have the example's sizes, each with the first dimension of these.
      conditions: conditions on sizes by which the module's code decided.
      entries: the name of each leaf of the example, in order; constants are themselves.
    """

    nodes: list[fx.Node]
    roles: dict[fx.Node, tuple[str, str]]
    signatures: dict[str, Any]
    outputs: Any
    constants: dict[str, Any]
    by_name: dict[str, fx.Node]
    frozen: set[fx.Node] = field(default_factory=set)
    ranges: set[fx.Node] = field(default_factory=set)
    fixed: dict[str, int] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)
    entries: tuple = ()

    def leaves(self) -> list[fx.Node]:
        """Returns the results of the whole module, each as often as the author returns it."""
        return [x for x in pytree.tree_leaves(self.outputs) if isinstance(x, fx.Node)]

    def call_arguments(self, call: str, parameters: list[str]) -> list[tuple[str, Any]] | None:
        """Returns the arguments of a submodule's call in its parameters' order: nodes, constants.

        None where they are not known. A call by a second name of the module has that behind an @.
        """
        signature = self.signatures.get(call) or self.signatures.get(call.partition("@")[2])
        if signature is None:
            return None
        value = lambda x: self.by_name.get(getattr(x, "name", ""), getattr(x, "value", None))
        leaves = [value(x) for x in signature.inputs]
        args, kwargs = pytree.tree_unflatten(leaves, signature.in_spec)
        place = lambda x: parameters.index(x[0]) if x[0] in parameters else len(parameters)
        return [*zip(parameters, args), *sorted(kwargs.items(), key=place)]


def export_graph(module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Graph:
    """Exports the module; sizes that decide nothing may vary.

    Raises:
      Unsupported: torch.export refuses the module.
    """
    exported = program_of(module, args, dict(kwargs))
    program = exported.program
    signature, aliases = program.graph_signature, Aliases(module)
    home = lambda name: aliases.array(_canonical_name(module, name))
    names = {
        **{k: ("param", home(v)) for k, v in signature.inputs_to_parameters.items()},
        **{k: ("buffer", aliases.array(v)) for k, v in signature.inputs_to_buffers.items()},
        **{k: ("constant", v) for k, v in signature.inputs_to_lifted_tensor_constants.items()},
        **{k: ("constant", k) for k in exported.constant_inputs},
    }
    flat, by_name = flattened(program.graph_module)
    simplifier = MaskSimplifier(flat)
    simplifier.run()
    by_name = {name: simplifier.replaced.get(node, node) for name, node in by_name.items()}
    roles, nodes = {}, []
    called = iter(x.name for x in program.graph_module.graph.nodes if x.op == "placeholder")
    for node in flat.nodes:
        aliases.rename(node)
        if node.op == "placeholder":  # fx calls another ``input`` and the like ``input_1``
            name = next(called)
            roles[node] = names.get(name, ("input", name))
        elif node.op == "output":
            results = node.args[0]
        else:
            nodes.append(node)
    num_side_outputs = len(signature.output_specs) - len(signature.user_outputs)
    outputs = pytree.tree_unflatten(list(results)[num_side_outputs:], program.call_spec.out_spec)
    entries = tuple(getattr(by_name.get(x), "name", x) for x in signature.user_inputs)
    calls = {x.fqn: x.signature for x in program.module_call_graph if _has_all_inputs(x.signature)}
    for node in nodes:
        _drop_empty_operands(node)
    restore_rates(nodes, module, args, dict(kwargs))
    nodes = without_repeated_heads(nodes)
    frozen = {n for n in nodes if n.meta.get("anyjax_frozen")}
    return Graph(
        nodes=nodes,
        roles=roles,
        signatures=calls,
        outputs=outputs,
        constants={**program.constants, **exported.constant_inputs},
        by_name=by_name,
        frozen=frozen,
        ranges=set(simplifier.ranges),
        fixed=exported.fixed,
        conditions=conditions(program),
        entries=entries,
    )


class Aliases:
    """The one name of each module that has several, and of the arrays in it: a head that a list
    has for each layer. It is the innermost, which the modules around it reach as well.
    """

    def __init__(self, module: torch.nn.Module):
        names: dict[torch.nn.Module, list[str]] = defaultdict(list)
        for name, submodule in module.named_modules(remove_duplicate=False):
            names[submodule].append(name)
        several = [x for x in names.values() if len(x) > 1]
        self.canonical = {
            x: max(same, key=lambda x: x.count(".")) for same in several for x in same
        }

    def array(self, name: str) -> str:
        """Returns the name of a parameter or buffer."""
        home, _, leaf = name.rpartition(".")
        return f"{self.canonical[home]}.{leaf}" if home in self.canonical else name

    def rename(self, node: fx.Node) -> None:
        """Renames the calls of a node: each alias becomes a call of its own.

        A module keeps an alias where its caller does not contain its one name.
        """
        if not self.canonical or not (stack := node.meta.get("nn_module_stack")):
            return
        renamed, prefix = {}, ""
        for key, (path, kind) in stack.items():
            name = path.partition("@")[0]
            canonical_name = self.canonical.get(name, name)
            if canonical_name != name and canonical_name.startswith(prefix):
                path = f"{canonical_name}@{path.replace('@', '_')}"
            renamed[key] = path, kind
            prefix = f"{path.partition('@')[0]}." if path else ""
        node.meta["nn_module_stack"] = renamed


def _drop_empty_operands(node: fx.Node) -> None:
    """Drops operands of ``cat`` of shape (0,), which join anything in torch, and nothing in JAX."""
    if packet(node) in ("aten.cat", "aten.concat") and node.meta["val"].ndim > 1:
        nonempty = [x for x in node.args[0] if x.meta["val"].ndim > 1]
        node.args = (nonempty, *node.args[1:])


def _has_all_inputs(signature: Any) -> bool:
    """Returns whether the inputs are known; in a region without gradients they are not."""
    return signature is not None and len(signature.inputs) == signature.in_spec.num_leaves


def _canonical_name(module: torch.nn.Module, name: str) -> str:
    """Returns a parameter's name; of tied ones, the one in an embedding."""
    parameter = module.get_parameter(name)
    same = [n for n, p in module.named_parameters(remove_duplicate=False) if p is parameter]
    kind = lambda n: type(module.get_submodule(n.rpartition(".")[0]))
    return next((n for n in same if issubclass(kind(n), torch.nn.Embedding)), name)
