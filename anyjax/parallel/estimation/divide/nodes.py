"""A jaxpr as a flat list of operations on numbered values; calls are inlined, loops are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from anyjax.jaxprs import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, called, opened, scan_counts
from anyjax.parallel.plans.sharding_rules import ShardingRule, sharding_rule

LOOPS = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}


@dataclass(frozen=True)
class Value:
    """An array of the program: its shape on all devices together."""

    shape: tuple[int, ...]
    itemsize: float
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass
class Node:
    """One operation.

    Attributes:
      ins: numbers of values, None for literals.
      inner: the programs inside of a loop or branch.
      barrier: a number; values are shared only within the same one, as in ``jax.checkpoint``.
    """

    name: str
    params: dict[str, Any]
    ins: list[Any]
    outs: list[int]
    inner: list[Program] = field(default_factory=list)
    barrier: int = 0
    where: str = ""


@dataclass
class Program:
    """Operations in order, and their values."""

    values: list[Value]
    inputs: list[int]
    outputs: list[int | None]
    nodes: list[Node]

    def add_value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1


def program_of(closed: ClosedJaxpr | Jaxpr, formulas: bool = False) -> Program:
    """Returns a jaxpr as a program; its constants are inputs after the others.

    Args:
      closed: the jaxpr.
      formulas: whether operators with kernels, as attention, are computed by their formulas.

    Example:
      >>> jaxpr = jax.make_jaxpr(jax.jit(lambda x: jax.numpy.sin(x) + 1))(1.0)
      >>> [node.name for node in program_of(jaxpr).nodes]
      ['sin', 'add']
    """
    jaxpr = opened(closed)
    program = Program([], [], [], [])
    numbers = {v: program.add_value(value_of(v.aval)) for v in (*jaxpr.invars, *jaxpr.constvars)}
    program.inputs = [numbers[v] for v in (*jaxpr.invars, *jaxpr.constvars)]
    program.outputs = _inline(program, jaxpr, numbers, 0, "", formulas)
    return _without_unused(program)


def value_of(aval: Any) -> Value:
    """Returns an abstract array as a value."""
    shape = tuple(getattr(aval, "shape", ()))
    dtype = getattr(aval, "dtype", None)
    if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return Value(shape, 8.0, "key")  # threefry's keys are two words
    bits = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}.get(str(dtype))
    return Value(shape, bits / 8 if bits else float(np.dtype(dtype).itemsize), str(dtype))


def _inline(
    program: Program, jaxpr: Jaxpr, numbers: dict, barrier: int, where: str, formulas: bool
) -> list:
    read = lambda v: None if isinstance(v, Literal) else numbers[v]
    for eqn in jaxpr.eqns:
        ins = [read(v) for v in eqn.invars]
        path = f"{where}/{eqn.source_info.name_stack}"
        if not (program_inside := called(eqn, formulas)):
            outs = _add_equation(program, eqn, ins, barrier, path, formulas)
            numbers |= dict(zip(eqn.outvars, outs))
            continue
        body = opened(program_inside)
        inner_numbers = dict(zip(body.invars, ins))
        inner_numbers |= {v: program.add_value(value_of(v.aval)) for v in body.constvars}
        is_recomputed = eqn.params.get("differentiated", False)
        count = len(program.nodes) + 1 if is_recomputed else barrier
        outs = _inline(program, body, inner_numbers, count, path, formulas)
        numbers |= dict(zip(eqn.outvars, outs))
    return [read(v) for v in jaxpr.outvars]


def _add_equation(
    program: Program, eqn: JaxprEqn, ins: list, barrier: int, where: str, formulas: bool
) -> list[int]:
    name = eqn.primitive.name
    inner: list[Program] = []
    for key in LOOPS.get(name, ()):
        programs = eqn.params[key]
        bodies = programs if isinstance(programs, Sequence) else [programs]
        inner += [program_of(body, formulas) for body in bodies]
    outs = [program.add_value(value_of(v.aval)) for v in eqn.outvars]
    if name == "dynamic_slice" and program.values[ins[0]].shape == program.values[outs[0]].shape:
        name, ins = "copy_p", ins[:1]  # a slice of everything, whatever its start
    params = eqn.params if not inner else {k: v for k, v in eqn.params.items() if k not in LOOPS}
    if name == "scan":
        params = params | dict(zip(("num_consts", "num_carry"), scan_counts(eqn)))
    program.nodes.append(Node(name, params, ins, outs, inner, barrier, where))
    return outs


def _without_unused(program: Program) -> Program:
    """Removes nodes whose results nothing uses."""
    needed_values = {v for v in program.outputs if v is not None}
    nodes = []
    for node in reversed(program.nodes):
        if needed_values.intersection(node.outs):
            needed_values.update(v for v in node.ins if v is not None)
            nodes.append(node)
    program.nodes = nodes[::-1]
    return program


def rule_of(node: Node, values: Sequence[Value]) -> ShardingRule:
    """Returns the sharding rule of an operation of a program."""
    ins = [() if v is None else values[v].shape for v in node.ins]
    return sharding_rule(node.name, node.params, ins, [values[v].shape for v in node.outs])
