"""One forward pass, jitted, also inside of transformations: torch runs once for a kind of call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from tojax import trees, warn_once
from tojax.calls import call
from tojax.calls.program import program
from tojax.errors import DataDependent, MissingRng, StaticArgument
from tojax.flax.wrap.summaries import printable
from tojax.model import Model
from tojax.trees import Static

Settings = Mapping[str, Any] | None


class Result(NamedTuple):
    """The output, what the forward pass wrote to params and state, and the names of those entries
    that the next call looks at.
    """

    out: Any
    written: dict[str, jax.Array]
    missed: frozenset[str]


def run(
    model: Model, args: tuple, kwargs: dict[str, Any], key: Any = None, settings: Settings = None
) -> Result:
    """The forward pass of a model in its mode. ``settings`` are values for entries of the state
    that are traced where the forward pass has to know them.
    """
    trees.register((args, kwargs))
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = [model.source.as_array(x) for x in leaves]
    static = tuple(None if trees.is_array(x) else Static(x) for x in arrays)
    arrays = [x for x in arrays if trees.is_array(x)]
    try:
        out, written, missed, holds = _run(model, structure, static, arrays, key)
    except DataDependent:
        pass  # known values decide: below they are known
    else:
        if holds is None or isinstance(holds, jax.core.Tracer) or bool(holds):
            out = jax.tree.map(_value, out, is_leaf=lambda x: isinstance(x, Static))
            return Result(out, written, missed.value)
    out, found = _apply(model, args, kwargs, key, settings or {})
    return Result(out, *_kept(found, model))


def _apply(model: Model, args, kwargs, key, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    given = model.params, model.state
    try:
        return call.apply(model.source, *given, args, kwargs, key)
    except DataDependent as error:
        traced = [k for k in settings if isinstance(model.state.get(k), jax.core.Tracer)]
        if trees.STATE not in error.arguments or not traced:
            raise
        state = {**model.state, **{k: settings[k] for k in traced}}
        out, found = call.apply(model.source, model.params, state, args, kwargs, key)
        if found.keys() & settings.keys():
            raise  # the next call would need another program
    warn_once.warn(
        f"{', '.join(traced)}: the values of such state decide what is computed, so a compiled "
        "program has those of the model that was wrapped",
        StaticArgument,
    )
    return out, found


def with_key(
    model: Model,
    args: tuple,
    kwargs: dict[str, Any],
    draw: Callable[[], Any],
    do: str,
    settings: Settings = None,
) -> Result:
    """``run`` with the key that ``draw()`` gives, None without one: in training at once, else where
    the forward pass asks for it.

    Raises:
      MissingRng: it draws and there is no key; ``do`` says how to give one.
    """
    key = draw() if _trains(model) else None
    try:
        result = run(model, args, kwargs, key, settings)
    except MissingRng as error:
        if key is not None or (key := draw()) is None:
            raise MissingRng(error.what, where=error.where, why=error.why, do=do) from error
        result = run(model, args, kwargs, key, settings)
    printable(result.out)
    return result


def _trains(model: Model) -> bool:
    """Whether any part of a model is in training mode."""
    mode = model.source.training
    return any(mode) if isinstance(mode, tuple) else bool(mode)


@program(static_argnames=("structure", "static"))
def _run(model, structure, static, arrays, key):
    rest = iter(arrays)
    args, kwargs = jax.tree.unflatten(
        structure, [next(rest) if x is None else x.value for x in static]
    )
    out, found = call.apply(model.source, model.params, model.state, args, kwargs, key)
    out = jax.tree.map(lambda x: x if trees.is_array(x) else Static(x), out)
    written, missed = _kept(found, model)
    return out, written, Static(missed), getattr(found, "holds", None)


def _kept(found, model) -> tuple[dict[str, jax.Array], frozenset[str]]:
    """What is new and not looked at (``self.last = x``) would only make the module larger."""
    missed = frozenset(getattr(found, "missed", found))
    known = missed | model.params.keys() | model.state.keys()
    return {k: v for k, v in found.items() if k in known}, missed


def _value(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf
