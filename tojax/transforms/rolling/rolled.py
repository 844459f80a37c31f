"""A source whose repeated params and state are held in stacks, and whose layers run as loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Var

from tojax import trees
from tojax.calling import Source
from tojax.transforms.rolling.loop import Row, run
from tojax.transforms.rolling.repeats import Program, Repeat, repeats
from tojax.transforms.rolling.same import Kinds
from tojax.transforms.rolling.straight import now, straight
from tojax.wrapped import Arrays, Wrapped


class Group(NamedTuple):
    """Arrays of one shape, held as rows of one array."""

    name: str
    members: tuple[str, ...]


class Traced(NamedTuple):
    """One call of a source as a program of its arrays.

    Attributes:
      inputs: variables by what they are: ("params", name), ("state", name), ("rest", number).
      program: equations, those that all layers share first.
      outvars: of the arrays that the call gives.
      join: makes (output, what was written) of these arrays.
    """

    jaxpr: Jaxpr
    consts: list[Any]
    inputs: dict[tuple[str, Any], Var]
    program: Program
    outvars: list[Any]
    join: Any

    def loops(self) -> list[Repeat]:
        """The repeats of the program."""
        return repeats(self.program)


def traced(source: Source, params: Arrays, state: Arrays, rest: tuple) -> Traced:
    """``source(params, state, *rest)`` as a program; arrays may be shapes and dtypes alone."""
    settings = {k: v for k, v in state.items() if _known(v)}
    names: list[tuple[str, Any]] = [("params", k) for k in params] + [
        ("state", k) for k in state if k not in settings
    ]
    leaves, structure = jax.tree.flatten(rest)
    places = [i for i, x in enumerate(leaves) if trees.is_array(x)]
    names += [("rest", i) for i in places]
    result: list[Any] = []

    def call(arrays: list[Any]) -> list[Any]:
        given = dict(zip(names, arrays))
        full = [given.get(("rest", i), x) for i, x in enumerate(leaves)]
        now_state = {k: settings[k] if k in settings else given["state", k] for k in state}
        now_params = {k: given["params", k] for k in params}
        out, written = source(now_params, now_state, *jax.tree.unflatten(structure, full))
        made, form = jax.tree.flatten((out, dict(written), getattr(written, "holds", None)))
        result[:] = made, form, written
        return [x for x in made if trees.is_array(x)]

    arrays = [*params.values(), *(state[k] for kind, k in names if kind == "state")]
    closed = jax.make_jaxpr(call)([*map(_shape, [*arrays, *(leaves[i] for i in places)])])
    inputs = dict(zip(names, closed.jaxpr.invars))
    named = {v: name for (kind, name), v in inputs.items() if kind != "rest"}
    kinds = Kinds()
    keys = {v for v in inputs.values() if jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.prng_key)}
    eqns, renamed = straight(closed.jaxpr, {*named}, keys, kinds)
    outvars = [now(v, renamed) for v in closed.jaxpr.outvars]
    program = Program(eqns, [*map(kinds, eqns)], outvars, named)
    made, form, written = result

    def join(arrays: list[Any]) -> tuple[Any, trees.Written]:
        rest = iter(arrays)
        out, new, holds = jax.tree.unflatten(
            form, [next(rest) if trees.is_array(x) else x for x in made]
        )
        return out, trees.Written(new, getattr(written, "missed", {*()}), holds)

    return Traced(closed.jaxpr, closed.consts, inputs, program, outvars, join)


def _known(x: Any) -> bool:
    return not isinstance(x, jax.ShapeDtypeStruct) and trees.is_setting(x)


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
        x.shape, jax.dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)
    )


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
        out = run(program.eqns, found.loops(), program.last_use, found.outvars, given, self.remat)
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
