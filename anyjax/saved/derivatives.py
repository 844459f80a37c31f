"""Derivatives of saved programs: the one that they bring, and errors of ours for all others.

program    arrays -> outputs
tangent    arrays and tangents -> tangents of the outputs; only its transpose can be computed
gradient   arrays and cotangents of the outputs -> cotangents: the saved derivative
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from anyjax.errors import Unsupported
from anyjax.numerics.primitives import primitive

FORWARD = "a forward-mode derivative (jax.jvp, jacfwd, hessian, linearize)"


@dataclass(frozen=True, eq=False)
class Held:
    """A program of ``jax.export``, and the name of the model that it is of; equal where the program
    is the same object, so that what is compiled for one call serves the next.
    """

    program: jax.export.Exported
    name: str

    def __hash__(self) -> int:
        return id(self.program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self.program is other.program


def call(program: jax.export.Exported, name: str, *args: Any) -> Any:
    """Returns the outputs of a program; ``jax.grad`` finds its derivative.

    Raises:
      Unsupported: another transformation meets it; the error says what to do instead.
    """
    flat: Any = jax.tree.flatten((args, {}))
    leaves, structure = flat
    if structure != program.in_tree:  # whose error names the difference
        return program.call(*args)
    arrays = [jnp.asarray(x) for x in leaves]
    return jax.tree.unflatten(program.out_tree, _program.bind(*arrays, held=Held(program, name)))


def _run(*arrays, held: Held):
    args, _ = jax.tree.unflatten(held.program.in_tree, arrays)
    return jax.tree.leaves(held.program.call(*args))


def _pull(*arrays, held: Held, active: tuple[bool, ...]):
    """Returns the cotangents of the active arrays."""
    return [*_pulled(held, active)(arrays[: len(active)], arrays[len(active) :])]


@functools.lru_cache(maxsize=64)
def _pulled(held: Held, active: tuple[bool, ...]) -> Callable:
    """Returns the compiled pullback: of (arrays, cotangents)."""

    def pulled(inputs, cotangents):
        def floats(*chosen):
            new = iter(chosen)
            outs = _run(*(next(new) if on else x for x, on in zip(inputs, active)), held=held)
            return [x for x in outs if _is_float(x)]

        chosen = [x for x, on in zip(inputs, active) if on]
        return jax.vjp(floats, *chosen)[1]([*cotangents])

    return jax.jit(pulled)


def _is_float(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _types(*types, held: Held):
    return jax.make_jaxpr(lambda *x: _run(*x, held=held))(*types).out_avals


def _tangent_types(*types, held: Held, active: tuple[bool, ...]):
    return [x for x in _types(*types[: len(active)], held=held) if _is_float(x)]


def _gradient_types(*types, held: Held, active: tuple[bool, ...]):
    return [x for x, on in zip(types, active) if on]


def _jvp(primals, tangents, *, held: Held):
    outs = _program.bind(*primals, held=held)
    active = tuple(type(t) is not ad.Zero and _is_float(x) for x, t in zip(primals, tangents))
    pushed = iter(())
    if any(active):
        along = [ad.instantiate_zeros(t) for t, on in zip(tangents, active) if on]
        pushed = iter(_tangent.bind(*primals, *along, held=held, active=active))
    zero = lambda x: ad.Zero(jax.typeof(x).to_tangent_aval())
    return outs, [next(pushed, zero(x)) if _is_float(x) else zero(x) for x in outs]


def _transpose(cotangents, *arrays, held: Held, active: tuple[bool, ...]):
    primals = arrays[: len(active)]
    along = [ad.instantiate_zeros(x) for x in cotangents]
    results = _gradient.bind(*primals, *along, held=held, active=active)
    return [None] * len(primals) + results


def _refuse(what: str) -> Callable[..., NoReturn]:
    """Returns a rule that raises Unsupported."""

    def rule(*_, held: Held, **__):
        raise Unsupported(
            f"{what} of {held.name}, which was loaded",
            why="its programs are compiled, with one derivative in reverse mode: jax.grad, jax.vjp",
            do="transform the model that was saved, or its program as operators of JAX: "
            'anyjax.from_stablehlo(folder + "/call-0.jax") takes (params, state, arrays, None)',
        )

    return rule


def _refuse_batch(arrays, dims, *, held: Held, **_):
    raise Unsupported(
        f"jax.vmap over {held.name}, which was loaded",
        why="its programs are compiled, and JAX has no batching rule for them",
        do="call it with the whole batch, for which it is saved with a size that is open: "
        'model.save(folder, x, shapes={"x": "batch, ..."}); or one after the other: jax.lax.map',
    )


_program = primitive("saved_program", _run, _types, jvp=_jvp, vmap=_refuse_batch)
_tangent = primitive(
    "saved_program_tangent",
    _refuse(FORWARD),
    _tangent_types,
    jvp=_refuse("a second derivative"),
    vmap=_refuse(FORWARD),
    transpose=_transpose,
)
_gradient = primitive(
    "saved_program_gradient",
    _pull,
    _gradient_types,
    jvp=_refuse("a second derivative"),
    vmap=_refuse_batch,
)
