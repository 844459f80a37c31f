"""One jitted forward pass, also inside of transformations: torch runs once for a kind of call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from anyjax import trees, warn_once
from anyjax.calls import call
from anyjax.calls.program import program
from anyjax.errors import DataDependent, MissingRng, StaticArgument
from anyjax.flax.wrap.summaries import printable
from anyjax.model import Model
from anyjax.trees import Static

Settings = Mapping[str, Any] | None


class Result(NamedTuple):
    """The output of a forward pass, the entries of params and state that it wrote, and the names of
    entries that the next call will read.
    """

    out: Any
    written: dict[str, jax.Array]
    missed: frozenset[str]


def run_forward(
    model: Model,
    args: tuple,
    kwargs: dict[str, Any],
    key: jax.Array | None = None,
    settings: Settings = None,
) -> Result:
    """Runs the forward pass of a model in its mode.

    ``settings`` are values for entries of the state, used where these are traced and the forward
    pass needs their values.
    """
    trees.register((args, kwargs))
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = [model.source.as_array(x) for x in leaves]
    static = tuple(None if trees.is_array(x) else Static(x) for x in arrays)
    arrays = [x for x in arrays if trees.is_array(x)]
    try:
        out, written, missed, holds = _run_jitted(model, structure, static, arrays, key)
    except DataDependent:
        pass  # values decide what is computed: without jit they are known
    else:
        if holds is None or isinstance(holds, jax.core.Tracer) or bool(holds):
            out = jax.tree.map(_value, out, is_leaf=lambda x: isinstance(x, Static))
            return Result(out, written, missed.value)
    out, writes = _apply(model, args, kwargs, key, settings or {})
    return Result(out, *_entries_to_keep(writes, model))


def _apply(model: Model, args, kwargs, key, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns (output, writes) without jit; traced settings are replaced by their values."""
    try:
        return call.apply(model.source, model.params, model.state, args, kwargs, key)
    except DataDependent as error:
        traced = [k for k in settings if isinstance(model.state.get(k), jax.core.Tracer)]
        if trees.STATE not in error.arguments or not traced:
            raise
        state = {**model.state, **{k: settings[k] for k in traced}}
        out, writes = call.apply(model.source, model.params, state, args, kwargs, key)
        if writes.keys() & settings.keys():
            raise  # the next call would need another program
    warn_once.warn(
        f"{', '.join(traced)}: the values of such state decide what is computed, so a compiled "
        "program has those of the model that was wrapped",
        StaticArgument,
    )
    return out, writes


def run_with_key(
    model: Model,
    args: tuple,
    kwargs: dict[str, Any],
    draw: Callable[[], jax.Array | None],
    do: str,
    settings: Settings = None,
) -> Result:
    """Runs the forward pass with the key of ``draw()``, which may return None. In training it is
    drawn at once, else only if the forward pass needs it.

    Raises:
      MissingRng: the forward pass needs a key and there is none; ``do`` says how to give one.
    """
    key = draw() if _trains(model) else None
    try:
        result = run_forward(model, args, kwargs, key, settings)
    except MissingRng as error:
        if key is not None or (key := draw()) is None:
            raise MissingRng(error.what, where=error.where, why=error.why, do=do) from error
        result = run_forward(model, args, kwargs, key, settings)
    printable(result.out)
    return result


def _trains(model: Model) -> bool:
    """Returns True if any module of the model is in training mode."""
    mode = model.source.training
    return any(mode) if isinstance(mode, tuple) else bool(mode)


@program(static_argnames=("structure", "static"))
def _run_jitted(model, structure, static, arrays, key):
    leaves = iter(arrays)
    args, kwargs = jax.tree.unflatten(
        structure, [next(leaves) if x is None else x.value for x in static]
    )
    out, writes = call.apply(model.source, model.params, model.state, args, kwargs, key)
    out = jax.tree.map(lambda x: x if trees.is_array(x) else Static(x), out)
    written, missed = _entries_to_keep(writes, model)
    return out, written, Static(missed), getattr(writes, "holds", None)


def _entries_to_keep(writes, model) -> tuple[dict[str, jax.Array], frozenset[str]]:
    """Drops new entries that are never read (``self.last = x``): they would grow the module."""
    missed = frozenset(getattr(writes, "missed", writes))
    names = missed | model.params.keys() | model.state.keys()
    return {k: v for k, v in writes.items() if k in names}, missed


def _value(leaf: object) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf
