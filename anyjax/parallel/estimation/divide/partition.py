"""A program divided over a mesh according to its inputs, with the collectives that it needs.

Each operation is divided along the dimensions of its operands that are divided; operands that do
not fit are gathered, sums over devices are reduced. XLA's partitioner has more rules:
``compiled.py`` has the figures of compiled programs, and tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anyjax.parallel.estimation.divide.nodes import Node, Program, Value, rule_of
from anyjax.parallel.plans.sharding_rules import Factor, Factors, ShardingRule

Spec = tuple[tuple[str, ...], ...]  # the mesh axes that divide each dimension
WHOLE: tuple[str, ...] = ()
PRODUCTS = ("dot_general", "ragged_dot_general", "conv_general_dilated")
ATTENTION = ("attention", "attention_tangent", "attention_gradient")  # by kernels
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


@dataclass
class Divided:
    """A program divided over a mesh.

    Attributes:
      program: its nodes, collectives among them; values have their shapes on all devices together.
      specs: the axes that divide each value.
      inner: the divided programs inside of nodes, by the node's number.
      rounds: how often it runs: the length of a loop.
      unknown: operations without a rule.
    """

    program: Program
    mesh: Mapping[str, int]
    specs: dict[int, Spec]
    inner: dict[int, list[Divided]] = field(default_factory=dict)
    rounds: int = 1
    unknown: set[str] = field(default_factory=set)

    def spec_of(self, v: int | None) -> Spec:
        """Returns the spec of a value; literals (None) have no dimensions."""
        return () if v is None else self.specs[v]

    def shape(self, v: int) -> tuple[int, ...]:
        value, spec = self.program.values[v], self.specs[v]
        counts = [math.prod(self.mesh[a] for a in axes) for axes in spec]
        return tuple(-(-n // p) for n, p in zip(value.shape, counts, strict=True))

    def bytes(self, v: int) -> int:
        return math.ceil(math.prod(self.shape(v)) * self.program.values[v].itemsize)


def replicated(value: Value) -> Spec:
    """Returns the spec of a value that is on every device."""
    return (WHOLE,) * len(value.shape)


def divide(
    program: Program,
    mesh: Mapping[str, int],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec | None] = (),
    weights: Sequence[bool] = (),
) -> Divided:
    """Divides a program over a mesh.

    Args:
      inputs: the spec of each input.
      outputs: the spec that each output shall have; None for any.
      weights: which inputs are weights: operations are divided as their other operands.
    """
    first = Partition(program, mesh, inputs, weights, {})
    first.divide_nodes()
    preferred = _propagate_backward(program, first, outputs)
    second = Partition(program, mesh, inputs, weights, preferred)
    second.divide_nodes()
    second.place_outputs(outputs)
    return second.result


def _propagate_backward(program: Program, first: Partition, outputs: Sequence) -> dict[int, Spec]:
    """Returns the specs that later operations prefer: of a gradient, that of its weight."""
    preferred: dict[int, Spec] = {}
    for v, out_spec in zip(program.outputs, outputs):
        if v is not None and out_spec is not None:
            preferred[v] = out_spec
    inputs, specs = {*program.inputs}, first.result.specs
    for node in reversed(program.nodes):
        rule = rule_of(node, program.values)
        if not rule.is_known or node.inner or node.name in NO_BACKWARD_PROPAGATION:
            continue
        for out, factors in zip(node.outs, rule.results):
            out_spec = preferred.get(out, specs[out])
            axes_of: dict[Factor, tuple] = {
                d: a for d, a in zip(factors, out_spec) if d is not None and a
            }
            if not axes_of:
                continue
            for v, factors in zip(node.ins, rule.operands):
                if v is None or v in inputs or v in preferred:
                    continue
                spec = specs[v]
                used_axes = {a for axes in spec for a in axes}
                candidate = tuple(
                    b or tuple(a for a in axes_of.get(d, ()) if a not in used_axes)
                    for b, d in zip(spec, factors)
                )
                if candidate != spec and spec_fits(candidate, program.values[v].shape, first.mesh):
                    preferred[v] = candidate
    return preferred


NO_BACKWARD_PROPAGATION = {"gather", "scatter-add", *PRODUCTS}


def spec_fits(spec: Spec, shape: Sequence[int], mesh: Mapping[str, int]) -> bool:
    """Returns whether the axes divide the dimensions, each axis at most once."""
    axes = [a for dim in spec for a in dim]
    counts = (math.prod(mesh[a] for a in dim) for dim in spec)
    return len(axes) == len({*axes}) and all(n % p == 0 for n, p in zip(shape, counts))


class Partition:
    """One pass through a program."""

    def __init__(self, program, mesh, inputs, weights, preferred):
        self.mesh = mesh = {k: n for k, n in mesh.items() if n > 1}
        self.preferred = preferred
        self.source = program
        copy = Program([*program.values], [*program.inputs], [*program.outputs], [])
        self.result = Divided(copy, mesh, dict(zip(program.inputs, inputs, strict=True)))
        for v in range(len(program.values)):  # constants inside of calls have no maker
            self.result.specs.setdefault(v, replicated(program.values[v]))
        self.resharded: dict[tuple, int] = {}
        self.broadcasts: dict[int, tuple[Node, ShardingRule]] = {}  # the nodes of broadcast values
        self.weights = {v for v, weight in zip(program.inputs, weights) if weight}

    def divide_nodes(self) -> None:
        """Divides every node."""
        for node in self.source.nodes:
            if node.inner:
                self.divide_loop(node)
            else:
                self.divide_node(node)

    def divide_node(self, node: Node) -> None:
        """Divides an operation without programs inside."""
        rule = rule_of(node, self.source.values)
        if not rule.is_known:
            self.result.unknown.add(node.name)
        chosen, reduced = self.choose_axes(node, rule)
        ins = self.reshard_operands(node, rule, chosen, node.barrier)
        if all(v is None or v in self.weights for v in node.ins) and len(node.ins) > 0:
            self.weights.update(node.outs)
        for v, factors in zip(node.outs, rule.results):
            self.result.specs[v] = _spec(chosen, factors)
        outs = node.outs
        permuted = chosen.get(rule.permuted, WHOLE) if rule.permuted is not None else WHOLE
        if reduced or permuted:
            outs = [self.new_like(v) for v in node.outs]
        self.add_node(Node(node.name, node.params, ins, outs, [], node.barrier, node.where))
        for partial, out in zip(outs, node.outs):
            if reduced:
                self.reduce_result(node, partial, out, reduced)
            elif permuted:
                self.add_collective("collective-permute", partial, out, permuted, node)
        if node.name == "broadcast_in_dim":
            self.broadcasts[node.outs[0]] = node, rule

    def choose_axes(
        self, node: Node, rule: ShardingRule
    ) -> tuple[dict[Factor, tuple[str, ...]], list[str]]:
        """Returns (the axes that divide each factor, the axes over which results are reduced)."""
        specs = [() if v is None else self.result.specs[v] for v in node.ins]
        result_factors = {d for factors in rule.results for d in factors}
        sizes: dict[Factor, int] = {}
        for vs, all_factors in ((node.ins, rule.operands), (node.outs, rule.results)):
            for v, factors in zip(vs, all_factors):
                shape = () if v is None else self.source.values[v].shape
                for d, n in zip(factors, shape):
                    sizes[d] = math.gcd(sizes.get(d, n), n)
        chosen: dict[Factor, tuple[str, ...]] = {}
        reduced: list[str] = []
        for axis in self.mesh:
            factor = self.best_factor(node, rule, specs, result_factors, axis)
            axes = (*chosen.get(factor, ()), axis)
            if factor is None or sizes[factor] % math.prod(self.mesh[a] for a in axes):
                continue
            chosen[factor] = axes
            if factor not in result_factors:
                reduced.append(axis)
        return chosen, reduced

    def best_factor(self, node, rule: ShardingRule, specs, result_factors, axis: str) -> Factor:
        """Returns the factor that an axis divides: that of an activation, else the cheapest."""
        costs: dict[Factor, float] = {}
        activation_sizes: dict[Factor, float] = {}
        factor_sizes: list[tuple[Factor, float]] = []
        for v, spec, factors in zip(node.ins, specs, rule.operands):
            for d, axes in zip(factors, spec):
                if axis in axes and v is not None:
                    size = self.result.bytes(v) * self.mesh[axis]
                    factor_sizes.append((d, size))
                    if d is not None and (v not in self.weights or node.name == "gather"):
                        activation_sizes[d] = activation_sizes.get(d, 0) + size
        if not factor_sizes:
            for v, factors in zip(node.outs, rule.results):
                for d, axes in zip(factors, self.preferred.get(v, ())):
                    if axis in axes and d is not None:
                        return d
            return None
        out = sum(self.result.bytes(v) for v in node.outs)
        for d in dict.fromkeys(d for d, _ in factor_sizes if d is not None):
            costs[d] = sum(n for factor, n in factor_sizes if factor != d)
            costs[d] += 0 if d in result_factors else 2 * out
        local_sizes = {d: n for d, n in activation_sizes.items() if d in result_factors}
        if local_sizes:
            first = max(local_sizes, key=lambda d: local_sizes[d])
            moved = min(
                (n for d, n in costs.items() if d in result_factors and d != first),
                default=math.inf,
            )
            if node.name == "dot_general" and moved + out < costs[first]:  # few rows, many weights
                return min(
                    (d for d in costs if d in result_factors and d != first), key=lambda d: costs[d]
                )
            return first
        factor = factor_sizes[0][0]
        if len({d for d, _ in factor_sizes}) == 1 and self.all_divided(factor, node, rule, axis):
            return factor
        costs[None] = sum(n for _, n in factor_sizes)
        return min(costs, key=lambda d: costs[d])

    def all_divided(self, factor: Factor, node: Node, rule: ShardingRule, axis: str) -> bool:
        """Returns whether the axis divides the factor in all operands that have it."""
        return all(
            axis in axes
            for v, factors in zip(node.ins, rule.operands)
            for d, axes in zip(factors, () if v is None else self.result.specs[v])
            if d == factor
        )

    def reduce_result(self, node: Node, partial: int, out: int, axes: Sequence[str]) -> None:
        """Adds an all-reduce of a result; a reduce-scatter, if later operations prefer that."""
        spec = self.result.specs[out]
        preferred = self.preferred.get(out, spec)
        extra = {a for dim in preferred for a in dim} - {a for dim in spec for a in dim}
        scatter = [a for a in axes if a in extra]
        if scatter:
            target = tuple(
                (*dim, *(a for a in target_axes if a in scatter))
                for dim, target_axes in zip(spec, preferred)
            )
            if spec_fits(target, self.source.values[out].shape, self.mesh):
                self.result.specs[out] = target
                all_reduced = [a for a in axes if a not in scatter]
                if all_reduced:
                    intermediate = self.new_like(out)
                    self.result.specs[intermediate] = spec
                    self.add_collective("all-reduce", partial, intermediate, all_reduced, node)
                    partial = intermediate
                self.add_collective("reduce-scatter", partial, out, scatter, node)
                return
        self.add_collective("all-reduce", partial, out, axes, node)

    def reshard(self, v: int, target: Spec, barrier: int = 0) -> int:
        """Returns the value in another spec; reuses earlier results."""
        spec = self.result.specs[v]
        if spec == target:
            return v
        key = v, target, barrier
        if key not in self.resharded:
            source_dims = {a: i for i, axes in enumerate(spec) for a in axes}
            target_dims = {a: i for i, axes in enumerate(target) for a in axes}
            gathered = [a for a in source_dims if a not in target_dims]
            exchanged = [
                a for a in source_dims if a in target_dims and target_dims[a] != source_dims[a]
            ]
            new = self.resharded[key] = self.new_like(v)
            self.result.specs[new] = target
            node = Node("", {}, [v], [new], [], barrier)
            if v in self.broadcasts:
                self.repeat_broadcast(v, new, target, barrier)
                return new
            if gathered:
                self.add_collective("all-gather", v, new, gathered + exchanged, node)
            elif exchanged:
                self.add_collective("all-to-all", v, new, exchanged, node)
            else:
                self.add_node(Node("slice", {}, [v], [new], [], barrier))
            if v in self.weights:
                self.weights.add(new)
        return self.resharded[key]

    def reshard_operands(
        self, node: Node, rule: ShardingRule, axes: Mapping[Factor, tuple[str, ...]], barrier: int
    ) -> list[int | None]:
        operands = zip(node.ins, rule.operands)
        return [v if v is None else self.reshard(v, _spec(axes, d), barrier) for v, d in operands]

    def repeat_broadcast(self, v: int, new: int, target: Spec, barrier: int) -> None:
        """Repeats a broadcast in another spec, from its operand there."""
        node, rule = self.broadcasts[v]
        axes = dict(zip(rule.results[0], target))
        ins = self.reshard_operands(node, rule, axes, 0)
        self.add_node(Node(node.name, node.params, ins, [new], [], barrier, node.where))
        self.broadcasts[new] = node, rule

    def add_collective(self, kind: str, v: int, out: int, axes: Sequence[str], node: Node) -> None:
        self.add_node(Node(kind, {"axes": tuple(axes)}, [v], [out], [], node.barrier, node.where))

    def new_like(self, v: int) -> int:
        """Adds a value of the same shape, dtype and spec; returns its number."""
        new = self.result.program.add_value(self.result.program.values[v])
        self.result.specs[new] = self.result.specs[v]
        return new

    def add_node(self, node: Node) -> int:
        self.result.program.nodes.append(node)
        return len(self.result.program.nodes) - 1

    def divide_loop(self, node: Node) -> None:
        """Divides a loop or a branch; a carry has the spec that the body gives it."""
        if node.name == "scan":
            lead = node.params["num_consts"], node.params["num_carry"]
            bodies, skip, rounds = node.inner, 0, node.params["length"]
        elif node.name == "while":
            cond_consts, body_consts = node.params["cond_nconsts"], node.params["body_nconsts"]
            lead, rounds = (body_consts, len(node.outs)), 1
            bodies, skip = node.inner[1:], cond_consts
        else:
            lead, bodies, skip, rounds = (len(node.ins) - 1, 0), node.inner, 1, 1
        consts, count = lead
        specs = [() if v is None else self.result.specs[v] for v in node.ins[skip:]]
        start = specs[: consts + count]
        start += [p[1:] for p in specs[consts + count :]]  # steps
        weights = [v in self.weights for v in node.ins[skip:]]
        for _ in range(3):
            inner = [self.divide_body(b, start, weights) for b in bodies]
            outs = [[d.spec_of(o) for o in d.program.outputs] for d in inner]
            carried = [_carried_spec(a, b) for a, b in zip(start[consts:], outs[0][:count])]
            if carried == start[consts : consts + count]:
                break
            start[consts : consts + count] = carried
        ends = [*start[consts : consts + count], *outs[0][count:]]
        inner = [divide(b, self.mesh, self.body_inputs(b, start), ends, weights) for b in bodies]
        steps = [((), *p) if node.name == "scan" else p for p in outs[0][count:]]
        for out, spec in zip(node.outs, [*start[consts : consts + count], *steps]):
            self.result.specs[out] = spec
        targets = [*start[: consts + count], *(((), *p) for p in start[consts + count :])]
        ins = [*node.ins[:skip]]
        ins += [
            v if v is None else self.reshard(v, spec, node.barrier)
            for v, spec in zip(node.ins[skip:], targets)
        ]
        new = Node(node.name, node.params, ins, node.outs, [], node.barrier, node.where)
        number = self.add_node(new)
        for body in inner:
            body.rounds = rounds
            self.result.unknown |= body.unknown
        self.result.inner[number] = inner

    def body_inputs(self, body: Program, start: Sequence[Spec]) -> list[Spec]:
        """Returns the specs of a body's inputs; its own constants are on every device."""
        constants = body.inputs[len(start) :]
        pad = lambda v, p: p if len(p) == len(body.values[v].shape) else replicated(body.values[v])
        input_specs = [pad(v, p) for v, p in zip(body.inputs, start)]
        return [*input_specs, *(replicated(body.values[v]) for v in constants)]

    def divide_body(self, body: Program, start, weights) -> Divided:
        """Divides a body, whose results may have any spec."""
        partition = Partition(body, self.mesh, self.body_inputs(body, start), weights, {})
        partition.divide_nodes()
        return partition.result

    def place_outputs(self, outputs: Sequence[Spec | None]) -> None:
        """Moves outputs to the specs that they shall have."""
        program = self.result.program
        for i, spec in enumerate(outputs):
            v = program.outputs[i]
            if v is not None and spec is not None and self.result.specs[v] != spec:
                program.outputs[i] = self.reshard(v, spec)


def _spec(axes: Mapping[Factor, tuple[str, ...]], factors: Factors) -> Spec:
    """Returns the spec of dimensions whose factors these axes divide."""
    return tuple(WHOLE if d is None else axes.get(d, WHOLE) for d in factors)


def _carried_spec(carry_spec: Spec, body_spec: Spec) -> Spec:
    """Returns a carry's spec: the body's, unless that is on every device."""
    return body_spec if any(body_spec) else carry_spec
