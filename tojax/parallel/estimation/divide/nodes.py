"""A jaxpr as one flat list of operations on numbered values; calls are inlined, loops are not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from tojax.jaxprs import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, called, opened, scan_counts

LOOPS = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}


@dataclass(frozen=True)
class Value:
    """An array of the program: its shape on all devices together."""

    shape: tuple[int, ...]
    itemsize: float
    dtype: str

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)


@dataclass
class Node:
    """One operation.

    Attributes:
      ins: numbers of values, None for literals.
      inner: of loops and branches the programs inside.
      barrier: what may not be merged with what was computed before, as in ``jax.checkpoint``.
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
    """Operations in order, and the values that they are about."""

    values: list[Value]
    inputs: list[int]
    outputs: list[int | None]
    nodes: list[Node]

    def new(self, value: Value) -> int:
        """The number of another value."""
        self.values.append(value)
        return len(self.values) - 1


def program_of(closed: ClosedJaxpr | Jaxpr) -> Program:
    """A jaxpr as a program; its constants are inputs after the others.

    Example:
      >>> jaxpr = jax.make_jaxpr(jax.jit(lambda x: jax.numpy.sin(x) + 1))(1.0)
      >>> [node.name for node in program_of(jaxpr).nodes]
      ['sin', 'add']
    """
    jaxpr = opened(closed)
    program = Program([], [], [], [])
    known = {v: program.new(value_of(v.aval)) for v in (*jaxpr.invars, *jaxpr.constvars)}
    program.inputs = [known[v] for v in (*jaxpr.invars, *jaxpr.constvars)]
    program.outputs = _inline(program, jaxpr, known, 0, "")
    return _needed(program)


def value_of(aval: Any) -> Value:
    """The value that an abstract array is."""
    shape = tuple(getattr(aval, "shape", ()))
    dtype = getattr(aval, "dtype", None)
    if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return Value(shape, 8.0, "key")  # threefry's keys are two words
    bits = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}.get(str(dtype))
    return Value(shape, bits / 8 if bits else float(np.dtype(dtype).itemsize), str(dtype))


def _inline(program: Program, jaxpr: Jaxpr, known: dict, barrier: int, where: str) -> list:
    """Adds the equations of a jaxpr; the numbers of its results."""
    read = lambda v: None if isinstance(v, Literal) else known[v]
    for eqn in jaxpr.eqns:
        ins = [read(v) for v in eqn.invars]
        here = f"{where}/{eqn.source_info.name_stack}"
        if (program_inside := called(eqn)) is None:
            known |= dict(zip(eqn.outvars, _add(program, eqn, ins, barrier, here)))
            continue
        body = opened(program_inside)
        inside = dict(zip(body.invars, ins))
        inside |= {v: program.new(value_of(v.aval)) for v in body.constvars}
        again = eqn.params.get("differentiated", False)
        count = len(program.nodes) + 1 if again else barrier
        known |= dict(zip(eqn.outvars, _inline(program, body, inside, count, here)))
    return [read(v) for v in jaxpr.outvars]


def _add(program: Program, eqn: JaxprEqn, ins: list, barrier: int, where: str) -> list[int]:
    name = eqn.primitive.name
    inner: list[Program] = []
    for key in LOOPS.get(name, ()):
        held = eqn.params[key]
        inner += map(program_of, held if isinstance(held, Sequence) else [held])
    outs = [program.new(value_of(v.aval)) for v in eqn.outvars]
    if name == "dynamic_slice" and program.values[ins[0]].shape == program.values[outs[0]].shape:
        name, ins = "copy_p", ins[:1]  # all of it, wherever it begins
    params = eqn.params if not inner else {k: v for k, v in eqn.params.items() if k not in LOOPS}
    if name == "scan":
        params = params | dict(zip(("num_consts", "num_carry"), scan_counts(eqn)))
    program.nodes.append(Node(name, params, ins, outs, inner, barrier, where))
    return outs


def _needed(program: Program) -> Program:
    """Without what nothing uses."""
    wanted = {v for v in program.outputs if v is not None}
    kept = []
    for node in reversed(program.nodes):
        if wanted.intersection(node.outs):
            wanted.update(v for v in node.ins if v is not None)
            kept.append(node)
    program.nodes = kept[::-1]
    return program
