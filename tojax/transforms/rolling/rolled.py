"""A source whose repeated params and state are held in stacks, and whose layers run as loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tojax import trees
from tojax.calls.wrapped import Arrays, Wrapped
from tojax.dtypes import shape_of
from tojax.jaxprs import ClosedJaxpr, Jaxpr, Var
from tojax.source import Source
from tojax.transforms.rolling.loop import Row, run
from tojax.transforms.rolling.repeats import Program, Repeat, repeats
from tojax.transforms.rolling.same import Kinds
from tojax.transforms.rolling.straight import now, straight


class Group(NamedTuple):
    """Arrays of one shape, held as rows of one array."""

    name: str
    members: tuple[str, ...]


class Traced(NamedTuple):
    """One call of a source as a program of its arrays.

    Attributes:
      inputs: variables by what they are: ("params", name), ("state", name), ("rest", number).
      program: equations, those that all layers share first.
      loops: its repeats.
      outvars: of the arrays that the call gives.
      join: makes (output, what was written) of these arrays.
    """

    jaxpr: Jaxpr
    consts: list[Any]
    inputs: dict[tuple[str, Any], Var]
    program: Program
    loops: list[Repeat]
    outvars: list[Any]
    join: Callable[[list[Any]], tuple[Any, trees.Written]]


def traced(source: Source, params: Arrays, state: Arrays, rest: tuple) -> Traced:
    """``source(params, state, *rest)`` as a program; arrays may be shapes and dtypes alone.

    A kind of call is traced once for each set of shapes: later ones find what was found.
    """
    settings = {k: trees.Constant(v) for k, v in state.items() if _known(v)}
    leaves, structure = jax.tree.flatten(rest)
    known = tuple(None if trees.is_array(x) else trees.Static(x) for x in leaves)
    names: list[tuple[str, Any]] = [("params", k) for k in sorted(params)]
    names += [("state", k) for k in sorted(state) if k not in settings]
    names += [("rest", i) for i, x in enumerate(known) if x is None]
    key = traced, (*names,), known, structure, trees.Static(settings)
    recordings = source.cache.notes
    if key not in recordings:
        recordings[key] = Recording(source, names, known, structure, settings)
    held: dict[str, Any] = {"params": params, "state": state, "rest": leaves}
    return recordings[key]([shape_of(held[kind][name]) for kind, name in names])


class Recording:
    """Calls of one kind, and the programs of those that were made."""

    def __init__(self, source: Source, names: list, known: tuple, structure: Any, settings: dict):
        self.names, self.found = names, dict[int, tuple[Any, Traced]]()
        self.last: Any = None

        def call(arrays: list[Any]) -> list[Any]:
            given = dict(zip(names, arrays))
            params = {k: x for (kind, k), x in given.items() if kind == "params"}
            state = {k: x for (kind, k), x in given.items() if kind == "state"}
            state |= {k: x.array for k, x in settings.items()}
            full = [given["rest", i] if x is None else x.value for i, x in enumerate(known)]
            out, written = source(params, state, *jax.tree.unflatten(structure, full))
            made, form = jax.tree.flatten((out, dict(written), getattr(written, "holds", None)))
            plain = [None if trees.is_array(x) else trees.Static(x) for x in made]
            self.last = form, plain, {*getattr(written, "missed", ())}
            return [x for x in made if trees.is_array(x)]

        self.jitted = jax.jit(call)

    def __call__(self, shapes: list[jax.ShapeDtypeStruct]) -> Traced:
        closed = self.jitted.trace(shapes).jaxpr  # JAX's own cache knows about its settings
        if id(closed) not in self.found:
            self.found[id(closed)] = closed, self._read(closed)
        return self.found[id(closed)][1]

    def _read(self, closed: ClosedJaxpr) -> Traced:
        jaxpr, kinds = closed.jaxpr, Kinds()
        inputs = dict(zip(self.names, jaxpr.invars, strict=True))
        named = {v: name for (kind, name), v in inputs.items() if kind != "rest"}
        keys = {v for v in jaxpr.invars if jnp.issubdtype(v.aval.dtype, jax.dtypes.prng_key)}
        eqns, renamed = straight(jaxpr, {*named}, keys, kinds)
        outvars = [now(v, renamed) for v in jaxpr.outvars]
        fixed = {v for (kind, _), v in inputs.items() if kind == "state"}  # frozen weights, too
        numbers = [kinds.apart(eqn, fixed) for eqn in eqns]
        program = Program(eqns, numbers, outvars, named)
        form, plain, missed = self.last

        def join(arrays: list[Any]) -> tuple[Any, trees.Written]:
            rest = iter(arrays)
            full = [next(rest) if x is None else x.value for x in plain]
            out, new, holds = jax.tree.unflatten(form, full)
            return out, trees.Written(new, missed, holds)

        return Traced(jaxpr, closed.consts, inputs, program, repeats(program), outvars, join)


def _known(x: Any) -> bool:
    return not isinstance(x, jax.ShapeDtypeStruct) and trees.is_setting(x)


@dataclass(frozen=True, eq=False)
class Rolled(Wrapped):
    """Calls ``base``, with arrays of its layers in stacks, and its layers as loops.

    Every kind of call is traced, and layers that are not provably the same in it run one by one.
    """

    groups: tuple[Group, ...]
    remat: bool = False

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """(params, state) of the base: the rows by their own names."""
        return self.open(params), self.open(state)

    def open(self, arrays: Arrays, cut: Any = None) -> dict[str, Any]:
        """Arrays by the base's names; ``cut(stack, i)`` gives a row."""
        cut = cut or (lambda stack, row: stack[row])
        members = {g.name: g.members for g in self.groups}
        found: dict[str, Any] = {}
        for name, x in arrays.items():
            rows = enumerate(members.get(name, ()))
            found |= {m: cut(x, i) for i, m in rows} if name in members else {name: x}
        return found

    def __call__(self, params, state, args, kwargs, rng=None):
        """What the base gives; what it writes to all rows of a stack comes back as a stack."""
        shape = lambda x, i: np.asarray(x)[i] if _known(x) else jax.ShapeDtypeStruct(
            x.shape[1:], x.dtype)  # fmt: skip
        rest = (args, kwargs, rng)
        found = traced(self.base, self.open(params, shape), self.open(state, shape), rest)
        row = lambda x, i: Row(x, i)
        values: dict[tuple[str, Any], Any] = {
            **{("params", k): x for k, x in self.open(params, row).items()},
            **{("state", k): x for k, x in self.open(state, row).items()},
            **{("rest", i): x for i, x in enumerate(jax.tree.leaves(rest))},
        }
        given = dict(zip(found.jaxpr.constvars, found.consts))
        given |= {v: values[key] for key, v in found.inputs.items()}
        program = found.program
        out = run(program.eqns, found.loops, program.last_use, found.outvars, given, self.remat)
        out, written = found.join(out)
        return out, self._closed(written, state)

    def _closed(self, written: trees.Written, state: Arrays) -> trees.Written:
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

    def write_back(self, params: Mapping[str, Any], state: Mapping[str, Any]) -> Any:
        """The source's own module, with the rows of the stacks."""
        return self.base.write_back(*self.opened(params, state))
