"""A module as one flat graph of torch operators, with the calls of its submodules."""

from __future__ import annotations

import inspect
import operator
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import Dim, export
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tojax.errors import Unsupported
from tojax.flax.codegen.aliases import Aliases
from tojax.flax.codegen.conditions import Condition, conditions
from tojax.flax.codegen.decided import (
    Undecided,
    deciding,
    sizes_from_arrays,
    tells_sizes,
    watched,
)
from tojax.flax.codegen.grouped import shared
from tojax.flax.codegen.inplace import VIEWS, Versions, packet, writes
from tojax.flax.codegen.involved import Involved, but_for_pictures, every_size, simple_sizes
from tojax.flax.codegen.known import computed
from tojax.flax.codegen.positions import Plain
from tojax.flax.codegen.private import grouped_experts
from tojax.flax.codegen.sizes import symbolic

IGNORED = {"aten._assert_tensor_metadata", "aten._assert_scalar", "aten.sym_constrain_range"}
SAME = {"aten.contiguous", "aten.alias", "aten.lift_fresh_copy", "aten.type_as"}
RESHAPES = {"aten.view", "aten.reshape", "aten.expand", "aten._unsafe_view", "aten.flatten"}
NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}
TRACEPOINT = "_export_tracepoint"  # torch leaves those of submodules that it wraps
WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


@dataclass(frozen=True)
class Graph:
    """What ``torch.export`` found.

    Attributes:
      nodes: operators in order; those of wrapped regions stand among them.
      roles: what each placeholder is: ("param" | "buffer" | "constant", its name), ("input", name).
      signatures: how each submodule was called, by path; None where that is not known.
      outputs: the tree of the result, with nodes as leaves.
      constants: values of the constants.
      known: nodes by the names that the signatures have for them.
      frozen: nodes whose results get no gradient.
      ranges: values that count positions, which are as short as a name for them.
      fixed: inputs that have to have the example's sizes, each with the first dimension of these.
      conditions: on sizes, by which the module's code decided.
    """

    nodes: list[fx.Node]
    roles: dict[fx.Node, tuple[str, str]]
    signatures: dict[str, Any]
    outputs: Any
    constants: dict[str, Any]
    known: dict[str, fx.Node]
    frozen: set[fx.Node] = field(default_factory=set)
    ranges: set[fx.Node] = field(default_factory=set)
    fixed: dict[str, int] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)

    def given(self, path: str, parameters: list[str]) -> list[tuple[str, Any]] | None:
        """What a submodule was called with, by its parameters and in their order: nodes, constants.

        None where it is not known.
        """
        signature = self.signatures.get(path)
        if signature is None:
            return None
        value = lambda x: self.known.get(getattr(x, "name", ""), getattr(x, "value", None))
        leaves = [value(x) for x in signature.inputs]
        args, kwargs = pytree.tree_unflatten(leaves, signature.in_spec)
        place = lambda x: parameters.index(x[0]) if x[0] in parameters else len(parameters)
        return [*zip(parameters, args), *sorted(kwargs.items(), key=place)]


def exported(module: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> Graph:
    """The graph for these inputs, every size of which may vary that does not decide anything.

    Raises:
      Unsupported: torch.export refuses the module.
    """
    program, constants, given, fixed = _program(module, args, dict(kwargs))
    signature, aliases = program.graph_signature, Aliases(module)
    home = lambda name: aliases.array(_home(module, name))
    names = {
        **{k: ("param", home(v)) for k, v in signature.inputs_to_parameters.items()},
        **{k: ("buffer", aliases.array(v)) for k, v in signature.inputs_to_buffers.items()},
        **{k: ("constant", v) for k, v in signature.inputs_to_lifted_tensor_constants.items()},
        **{k: ("constant", k) for k in given},
    }
    flat, known = _flattened(program.graph_module)
    plain = Plain(flat)
    plain.run()
    known = {name: plain.replaced.get(node, node) for name, node in known.items()}
    roles, nodes = {}, []
    for node in flat.nodes:
        aliases.rename(node)
        if node.op == "placeholder":
            roles[node] = names.get(node.name, ("input", node.name))
        elif node.op == "output":
            results = node.args[0]
        else:
            nodes.append(node)
    count = len(signature.output_specs) - len(signature.user_outputs)
    outputs = pytree.tree_unflatten(list(results)[count:], program.call_spec.out_spec)
    calls = {x.fqn: x.signature for x in program.module_call_graph if _complete(x.signature)}
    for node in nodes:
        _without_empty(node)
    nodes = shared(nodes)
    frozen = {n for n in nodes if n.meta.get("tojax_frozen")}
    constants = {**constants, **given}
    return Graph(
        nodes, roles, calls, outputs, constants, known, frozen,
        set(plain.ranges), fixed, conditions(program),
    )  # fmt: skip


def _without_empty(node: fx.Node) -> None:
    """What has no numbers in one dimension joins anything in torch, and nothing in JAX."""
    if packet(node) in ("aten.cat", "aten.concat") and node.meta["val"].ndim > 1:
        parts = [x for x in node.args[0] if x.meta["val"].ndim > 1]
        node.args = (parts, *node.args[1:])


def _complete(signature: Any) -> bool:
    """Whether the inputs are known; not so of what lies in a region without gradients."""
    return signature is not None and len(signature.inputs) == signature.in_spec.num_leaves


def _home(module: torch.nn.Module, name: str) -> str:
    """A parameter's name; of several the one in an embedding, which others are tied to."""
    parameter = module.get_parameter(name)
    same = [n for n, p in module.named_parameters(remove_duplicate=False) if p is parameter]
    kind = lambda n: type(module.get_submodule(n.rpartition(".")[0]))
    return next((n for n in same if issubclass(kind(n), torch.nn.Embedding)), name)


def _program(module, args, kwargs):
    """(the exported program, its constants, inputs that are constants, those of fixed sizes)."""
    names = _plainly_called(module, args, kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    program: Any = None
    failure: Exception | None = None
    picture: dict[str, int] = {}
    try:
        with simple_sizes(module):
            program = _attempted(module, args, kwargs, set(names), every_size)
    except Exception as error:
        failure = error
    pictures = any(len(every_size(x)) > len(but_for_pictures(x)) for x in leaves)
    if pictures and failure and not isinstance(failure, GuardOnDataDependentSymNode):
        try:
            program = _attempted(module, args, kwargs, set(names), but_for_pictures)
            failure = None
            inputs = zip(program.graph_signature.user_inputs, leaves)
            picture = {k: 1 for k, x in inputs if len(every_size(x)) > len(but_for_pictures(x))}
        except Exception as error:
            failure = error if isinstance(failure, Involved) else failure
    if failure is not None or sizes_from_arrays(program):
        for attempt in (_grouped, _computed, _decided):
            try:
                return attempt(module, args, kwargs, set(names))
            except Exception as error:
                other = error
        if failure is not None:
            raise _refused(module, failure) from other
    return program, program.constants, {}, picture


def _grouped(module, args, kwargs, names: set[str]):
    """The same with experts as grouped products, where the loop over those hit decides."""
    with grouped_experts(module) as found:
        if not found:
            raise Undecided("there are no experts")
        program = _attempted(module, args, kwargs, names, every_size)
    return program, program.constants, {}, {}


def _computed(module, args, kwargs, names: set[str]):
    """The same with the numbers that follow from arrays of sizes: ``tojax.flax.codegen.known``."""
    leaves = pytree.tree_leaves((args, kwargs))
    telling = lambda x: tells_sizes(x, leaves)
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    values = {k: x for k, x in bound.items() if any(map(telling, pytree.tree_leaves(x)))}
    if not values:
        raise Undecided("no input is an array of sizes")
    some = lambda x: [] if telling(x) else every_size(x)
    with computed(module, values):
        program = _attempted(module, args, kwargs, names, some)
    if sizes_from_arrays(program):
        raise Undecided("sizes follow from what arrays hold")
    inputs = zip(program.graph_signature.user_inputs, leaves)
    return program, program.constants, {name: x for name, x in inputs if telling(x)}, {}


def _attempted(module, args, kwargs, names: set[str], varying: Any):
    """The program; submodules that are called in several ways go without signature."""
    sizes = lambda x: dict.fromkeys(varying(x), Dim.AUTO) if isinstance(x, torch.Tensor) else None
    shapes = _by_argument(module, *pytree.tree_map(sizes, (args, kwargs)))
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch's own modules
                return export(
                    module,
                    args,
                    kwargs,
                    dynamic_shapes=shapes,
                    strict=False,
                    preserve_module_call_signature=tuple(names),
                )
        except AssertionError as error:
            found = re.search(r"mismatch for _export_root\.(\S+?):", str(error))
            if found is None or found[1] not in names:
                raise
            names.discard(found[1])
        except Exception as error:
            if not names or isinstance(error, (GuardOnDataDependentSymNode, Involved)):
                raise
            names.clear()  # how submodules are called then follows from what they read


def _decided(module, args, kwargs, names: set[str]):
    """The same where numbers in arrays decide: see ``tojax.flax.codegen.decided``."""
    leaves = pytree.tree_leaves((args, kwargs))
    fixed = False
    while True:
        some = lambda x: [] if fixed or tells_sizes(x, leaves) else every_size(x)  # noqa: B023
        with watched() as decisions:
            program = _attempted(module, args, kwargs, names, some)
        inputs, fixes = deciding(program, decisions.symbols)
        if fixed or not fixes:
            break
        fixed = True  # sizes reach numbers that decide: no other sizes can be right
    values = dict(zip(program.graph_signature.user_inputs, leaves))
    given = {name: values[name] for name in inputs if name in values}
    if not all(tells_sizes(value, leaves) for value in given.values()):
        raise Undecided(f"the numbers in {', '.join(given)} decide")
    return program, program.constants, given, dict.fromkeys(values, 0) if fixed else {}


def _plainly_called(module, args, kwargs) -> set[str]:
    """The submodules that take and give arrays, flags and nothing else."""
    found: set[str] = set()
    left_out: set[str] = set()
    handles = []

    def hook(name):
        def note(_, args, kwargs, out):
            leaves = pytree.tree_leaves((args, kwargs, out))
            plain = all(x is None or isinstance(x, (torch.Tensor, bool, float)) for x in leaves)
            (found if plain else left_out).add(name)

        return note

    kept = [vars(part) for part in module.modules()]  # no caches of this call, as they were before:
    inside = [x for held in kept for x in held.values() if isinstance(x, (dict, list))]
    before = [(x, x.copy()) for x in (*kept, *inside)]
    for name, part in module.named_modules():
        if name:
            handles.append(part.register_forward_hook(hook(name), with_kwargs=True))
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        for held, values in before:
            held.clear()
            held.extend(values) if isinstance(held, list) else held.update(values)
    return found - left_out


def _by_argument(module, args, kwargs):
    """Dynamic shapes are given by the names of arguments, positional ones included."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        found |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


def _refused(module, error: Exception) -> Unsupported:
    said = str(error).strip().splitlines()
    where = re.findall(r'File "(.+?)", line (\d+)', str(error))
    return Unsupported(
        f"torch.export refuses {type(module).__name__}",
        where=":".join(where[-1]) if where else "",
        why=" ".join(said[:3])[:400] or type(error).__name__,
        do="change what it names, or pass partial=True to leave that submodule a call into tojax",
    )


def _flattened(root: fx.GraphModule) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """One graph without writes, regions without gradient or with autocast where they were called;
    and its nodes by their old names.
    """
    copier = _Copier()
    copier.graph.output(copier.copy(root, None, False))
    return copier.graph, copier.known


class _Copier:
    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.known: dict[str, fx.Node] = {}
        self.versions = Versions(self.graph)
        self.calls: Counter[str] = Counter()  # of submodules, in wrapped regions

    def copy(self, part: fx.GraphModule, inputs, frozen: bool):
        """Copies a graph's nodes; gives its outputs."""
        env: dict[fx.Node, Any] = {}
        given = iter(inputs or ())
        now = lambda n: self.versions.now(env[n]) if isinstance(env[n], fx.Node) else env[n]
        look = lambda x: fx.node.map_arg(x, now)
        for node in part.graph.nodes:
            name = packet(node)
            self.versions.at(node)
            if node.op == "placeholder":
                env[node] = self.graph.node_copy(node) if inputs is None else next(given)
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
                env[node] = look(node.args[0])
            elif writes(node):
                env[node] = self.versions.functional(node, look(node.args), look(dict(node.kwargs)))
            elif name not in IGNORED:
                env[node] = self.graph.node_copy(node, now)
                env[node].meta = dict(node.meta) | ({"tojax_frozen": True} if frozen else {})
                self._numbered(env[node])
                if name in VIEWS and node.args[0] in env:
                    self.versions.noted(env[node], now(node.args[0]))
            self.known[node.name] = env.get(node)
        raise AssertionError("a graph without output")

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
