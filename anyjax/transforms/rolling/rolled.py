"""A source with stacked params and state of repeated layers, which run as loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anyjax import trees
from anyjax.calls.wrapped import Arrays, Wrapped
from anyjax.dtypes import shape_of
from anyjax.jaxprs import ClosedJaxpr, Jaxpr, Var, needed
from anyjax.source import Source
from anyjax.transforms.rolling.equation_kinds import Kinds
from anyjax.transforms.rolling.hoisting import hoist_shared, resolve
from anyjax.transforms.rolling.loop import Row, evaluate
from anyjax.transforms.rolling.repeats import Program, Repeat, repeats


class Group(NamedTuple):
    """A stack of arrays of one shape: its name, and the names of its rows."""

    name: str
    members: tuple[str, ...]


class TracedCall(NamedTuple):
    """A call of a source as a program of its arrays.

    Attributes:
      inputs: variables by origin: ("params", name), ("state", name), ("rest", number).
      program: equations, those that all layers share first.
      loops: its repeats.
      outvars: of the arrays in the result of the call.
      join: makes (output, written state) of these arrays.
    """

    jaxpr: Jaxpr
    consts: list[Any]
    inputs: dict[tuple[str, Any], Var]
    program: Program
    loops: list[Repeat]
    outvars: list[Any]
    join: Callable[[list[Any]], tuple[Any, trees.Written]]


def trace_call(
    source: Source, params: Arrays, state: Arrays, rest: tuple, hoist: bool = True
) -> TracedCall:
    """Traces ``source(params, state, *rest)``; arrays may be shapes and dtypes alone.

    A kind of call is traced and analysed once for each set of shapes. Without ``hoist`` equations
    stay in the order of the trace: what a round computes of numbers of its own is in the round.
    """
    settings = {k: trees.Constant(v) for k, v in state.items() if _is_setting(v)}
    leaves, structure = jax.tree.flatten(rest)
    static = tuple(None if trees.is_array(x) else trees.Static(x) for x in leaves)
    names: list[tuple[str, Any]] = [("params", k) for k in sorted(params)]
    names += [("state", k) for k in sorted(state) if k not in settings]
    names += [("rest", i) for i, x in enumerate(static) if x is None]
    key = trace_call, (*names,), static, structure, trees.Static(settings), hoist
    recordings = source.cache.notes
    if key not in recordings:
        recordings[key] = Recording(source, names, static, structure, settings, hoist)
    arrays: dict[str, Any] = {"params": params, "state": state, "rest": leaves}
    return recordings[key]([shape_of(arrays[kind][name]) for kind, name in names])


class Recording:
    """Calls of one kind, and their programs so far."""

    def __init__(
        self,
        source: Source,
        names: list,
        static: tuple,
        structure: jax.tree_util.PyTreeDef,
        settings: dict,
        hoist: bool,
    ):
        self.names, self.traced_calls = names, dict[int, tuple[Any, TracedCall]]()
        self.hoist = hoist
        self.last_result: Any = None

        def call(arrays: list[jax.Array]) -> list[Any]:
            inputs = dict(zip(names, arrays))
            params = {k: x for (kind, k), x in inputs.items() if kind == "params"}
            state = {k: x for (kind, k), x in inputs.items() if kind == "state"}
            state |= {k: x.array for k, x in settings.items()}
            full = [inputs["rest", i] if x is None else x.value for i, x in enumerate(static)]
            out, written = source(params, state, *jax.tree.unflatten(structure, full))
            result = out, dict(written), getattr(written, "holds", None)
            leaves, result_structure = jax.tree.flatten(result)
            static_leaves = [None if trees.is_array(x) else trees.Static(x) for x in leaves]
            missed = {*getattr(written, "missed", ())}
            self.last_result = result_structure, static_leaves, missed
            return [x for x in leaves if trees.is_array(x)]

        self.call, self.jitted = call, jax.jit(call)

    def __call__(self, shapes: list[jax.ShapeDtypeStruct]) -> TracedCall:
        closed = self.jitted.trace(shapes).jaxpr  # cached by JAX, which knows its own settings
        if len(closed.jaxpr.invars) > len(self.names):  # an edit refers to values of a trace
            return self._analyse(jax.make_jaxpr(self.call)(shapes))
        if id(closed) not in self.traced_calls:
            self.traced_calls[id(closed)] = closed, self._analyse(closed)
        return self.traced_calls[id(closed)][1]

    def _analyse(self, closed: ClosedJaxpr) -> TracedCall:
        jaxpr, kinds = closed.jaxpr, Kinds()
        inputs = dict(zip(self.names, jaxpr.invars, strict=True))
        named = {v: name for (kind, name), v in inputs.items() if kind != "rest"}
        keys = {v for v in jaxpr.invars if jnp.issubdtype(v.aval.dtype, jax.dtypes.prng_key)}
        eqns, renamed = needed(jaxpr.eqns, jaxpr.outvars), dict[Var, Var]()
        if self.hoist:
            eqns, renamed = hoist_shared(jaxpr, {*named}, keys, kinds)
        outvars = [resolve(v, renamed) for v in jaxpr.outvars]
        state = {v for (kind, _), v in inputs.items() if kind == "state"}  # frozen weights, too
        numbers = [kinds.number_with_marks(eqn, state) for eqn in eqns]
        program = Program(eqns, numbers, outvars, named)
        structure, static_leaves, missed = self.last_result

        def join(arrays: list[jax.Array]) -> tuple[Any, trees.Written]:
            remaining = iter(arrays)
            full = [next(remaining) if x is None else x.value for x in static_leaves]
            out, new, holds = jax.tree.unflatten(structure, full)
            return out, trees.Written(new, missed, holds)

        return TracedCall(jaxpr, closed.consts, inputs, program, repeats(program), outvars, join)


def _is_setting(x: object) -> bool:
    return not isinstance(x, jax.ShapeDtypeStruct) and trees.is_setting(x)


@dataclass(frozen=True, eq=False)
class Rolled(Wrapped):
    """A source that calls ``base`` with its layers as loops over stacked arrays.

    Every kind of call is traced; layers that are not provably the same in it run one by one.
    """

    groups: tuple[Group, ...]
    remat: bool = False
    hoist: bool = True
    on_round: Callable[[], None] | None = None

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """Returns (params, state) of the base: the rows of stacks by their own names."""
        return self.unstack(params), self.unstack(state)

    def unstack(
        self, arrays: Arrays, row: Callable[[jax.Array, int], object] = lambda stack, i: stack[i]
    ) -> dict[str, Any]:
        """Returns arrays by the base's names; ``row(stack, i)`` makes a row."""
        members = {g.name: g.members for g in self.groups}
        unstacked: dict[str, Any] = {}
        for name, x in arrays.items():
            rows = enumerate(members.get(name, ()))
            unstacked |= {m: row(x, i) for i, m in rows} if name in members else {name: x}
        return unstacked

    def __call__(self, params, state, args, kwargs, rng=None):
        """Calls the base; writes to rows of a stack are returned as a stack."""
        shape = lambda x, i: np.asarray(x)[i] if _is_setting(x) else jax.ShapeDtypeStruct(
            x.shape[1:], x.dtype)  # fmt: skip
        rest = (args, kwargs, rng)
        traced = trace_call(
            self.base, self.unstack(params, shape), self.unstack(state, shape), rest, self.hoist
        )
        values: dict[tuple[str, Any], Any] = {
            **{("params", k): x for k, x in self.unstack(params, Row).items()},
            **{("state", k): x for k, x in self.unstack(state, Row).items()},
            **{("rest", i): x for i, x in enumerate(jax.tree.leaves(rest))},
        }
        inputs = dict(zip(traced.jaxpr.constvars, traced.consts))
        inputs |= {v: values[key] for key, v in traced.inputs.items()}
        eqns, last_use = traced.program.eqns, traced.program.last_use
        options = self.remat, self.on_round
        results = evaluate(eqns, traced.loops, last_use, traced.outvars, inputs, *options)
        out, written = traced.join(results)
        return out, self._stack_writes(written, state)

    def _stack_writes(self, written: trees.Written, state: Arrays) -> trees.Written:
        new, missed = dict(written), {*written.missed}
        for group in self.groups:
            changed = [m for m in group.members if m in new]
            if not changed:
                continue
            rows = [
                new.pop(m) if m in new else state[group.name][i]
                for i, m in enumerate(group.members)
            ]
            new[group.name] = jnp.stack(rows)
            if missed & {*changed}:
                missed.add(group.name)
        return trees.Written(new, missed, written.holds)

    def initial(self, params, state, rng, build=None) -> dict[str, jax.Array]:
        """Returns what the initialisers of the base draw, rows as stacks."""
        new = self.base.initial(*self.opened(params, state), rng, build)
        return dict(self._stack_writes(trees.Written(new, {*new}), {**params, **state}))

    def write_back(self, params: Arrays, state: Arrays) -> Any:
        """Returns the source's own module, with the rows of the stacks."""
        return self.base.write_back(*self.opened(params, state))
