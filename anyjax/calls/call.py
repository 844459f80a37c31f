"""Calls of a model: ``model(...)``, which is jitted and makes static what decides shapes, and
``model.apply``, which is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from anyjax import trees, warn_once
from anyjax.calls import call_key, explicit_mesh, layouts
from anyjax.calls.program import program
from anyjax.calls.rng import check_key
from anyjax.dtypes import shape_of
from anyjax.errors import (
    DataDependent,
    StateDropped,
    StaticArgument,
    UncheckedValues,
    WrongArguments,
)
from anyjax.source import Source
from anyjax.trees import Static
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef

END = 2**31 - 1 - (1 << 24)
MANY = 4  # different floats for one argument, which look as if there were more to come


def call(model: Any, args: tuple, kwargs: dict[str, Any], rng: jax.Array | None) -> Any:
    """``model(*args, rng=rng, **kwargs)``."""
    compiled = model.source.compiled(model.params, model.state, args, kwargs, rng)
    if compiled is not None:
        out, written = compiled
        warn_dropped(written, model.state)
        return trees.plain_dicts(out)
    leaves, structure = jax.tree.flatten((args, kwargs))
    keyed = call_key.key_and_arrays(model.source, leaves, structure)
    if keyed is not None:
        key, arrays = keyed
        try:
            bound, kind = model.source.cache.call_keys[key]
            out, holds = bound.jitted(bound.arrays(model), kind, arrays, rng)
        except (KeyError, DataDependent):  # none yet, or other names or shapes: worked out anew
            pass
        else:
            if kind.fresh:
                _remember(model.source, kind, arrays, rng)
            return _checked(model, args, kwargs, rng, kind, out, holds)
    return _first(model, args, kwargs, rng, keyed and keyed[0])


def _first(model: Any, args: tuple, kwargs: dict[str, Any], rng: Any, key: Any) -> Any:
    """Serves a call of a new kind, or (``key`` is None) of one that is never cached."""
    check_key(rng)
    trees.register((args, kwargs))
    leaves, structure = jax.tree.flatten((args, kwargs))
    leaves = [model.source.as_array(x) for x in leaves]
    names = trees.names(args, kwargs, model.source.positional)
    pinned = {*model.source.cache.static_arguments.get(structure, model.source.layouts)}
    learned: set[str] = set()
    while True:
        by_value = [n in pinned and layouts.has_values(x) for n, x in zip(names, leaves)]
        static = tuple(map(_pin, leaves, by_value))
        arrays = [x for x, s in zip(leaves, static) if s is None]
        static_state, state = _settings(model.state, trees.STATE in pinned)
        kind = call_key.CallKind(structure, static, static_state).known_to(model.source)
        _count_floats(model.source, kind, names)
        try:
            out, holds = _run(replace(model, state=state), kind, arrays, rng)
        except DataDependent as error:
            deciding = set(error.arguments) - pinned
            settled = trees.STATE in deciding and not _settings(model.state, True)[0].value
            by_name = dict(zip(names, leaves))
            if settled or not deciding or not layouts.decidable(deciding - {trees.STATE}, by_name):
                layouts.help_with(error, by_name, "model(x{})")
                raise
            pinned |= deciding
            _known(model.source, structure).update(deciding)
            learned |= deciding - {trees.STATE}
            continue
        if learned:
            layouts.notice(learned)
        if kind.fresh:
            _remember(model.source, kind, arrays, rng)
        if key is not None and not pinned:
            model.source.cache.call_keys[key] = _run.bound(model), kind
        return _checked(model, args, kwargs, rng, kind, out, holds)


def _count_floats(source: Source, kind: call_key.CallKind, names: list[str]) -> None:
    """Says which argument keeps coming as another Python float."""
    for name, static in zip(names, kind.static):
        if static is None or type(static.value) is not float:
            continue
        seen = source.cache.floats.setdefault((kind.structure, name), {})
        if static not in seen and len(seen) == MANY - 1:
            shown = ", ".join(repr(x.value) for x in (*seen, static))
            warn_once.warn(
                f"{name} came as {MANY} different Python floats ({shown}), and the program is "
                "compiled once for each of them: give it as an array, np.float32(value)",
                StaticArgument,
            )
        seen[static] = True


def _checked(model, args, kwargs, rng, kind: call_key.CallKind, out, holds) -> Any:
    """Returns the output, if the model's own checks of values hold."""
    failed = holds is not None and not isinstance(holds, jax.core.Tracer) and not holds
    if failed or (kind.stepped and _near_the_end((args, kwargs))):
        return model.apply(model.params, *args, rng=rng, **kwargs)  # raises where values tell
    _warn_unchecked(kind.unchecked, holds)
    if not kind.wraps:
        return out
    return trees.plain_dicts(jax.tree.map(_unwrap, out, is_leaf=lambda x: isinstance(x, Static)))


def apply(
    source: Source,
    params: PyTree,
    state: PyTree,
    args: tuple,
    kwargs: dict[str, PyTree],
    rng: jax.Array | int | None,
) -> tuple[Any, dict[str, jax.Array]]:
    """Returns the output and what the forward pass wrote."""
    check_key(rng)
    _check_weights(params=params, state=state)
    args, kwargs = layouts.opened(args, kwargs, source)
    static_names: set[str] = set()
    if source.layouts or source.cache.static_arguments:
        args, kwargs, static_names = _fixed(source, args, kwargs, None)
    while True:
        try:
            out, written = explicit_mesh.call_on_mesh(source, params, state, args, kwargs, rng)
            _warn_unchecked(getattr(written, "unchecked", None), getattr(written, "holds", None))
            return out, written
        except DataDependent as error:
            deciding = set(error.arguments)
            by_name = _by_name(source, args, kwargs)
            if deciding <= static_names or not layouts.decidable(deciding - static_names, by_name):
                every = set().union(source.layouts, *source.cache.static_arguments.values())
                layouts.help_with(error, by_name, "model.apply(params, x{})", every)
                raise
            args, kwargs, static_names = _fixed(source, args, kwargs, deciding)


def _by_name(source: Source, args: tuple, kwargs: dict[str, PyTree]) -> dict[str, Any]:
    """Returns the leaves of the arguments by their names, as the source takes them."""
    names = trees.names(args, kwargs, source.positional)
    return dict(zip(names, map(source.as_array, jax.tree.leaves((args, kwargs)))))


def _fixed(source: Source, args: tuple, kwargs: dict[str, PyTree], deciding: set[str] | None):
    """Returns (args, kwargs) with known arrays that decide as constants, and their names: further
    ones than those of earlier calls of this structure, which are remembered.
    """
    structure = jax.tree.structure((args, kwargs))
    if deciding:
        _known(source, structure).update(deciding)
    decide = source.cache.static_arguments.get(structure, source.layouts)
    leaves = _by_name(source, args, kwargs)
    is_static = lambda n, x: (
        n in decide and (isinstance(x, trees.Constant) or layouts.has_values(x))
    )
    names = {n for n, x in leaves.items() if is_static(n, x)}
    fix = lambda x: x if isinstance(x, trees.Constant) else trees.Constant(x)
    fixed = [fix(x) if n in names else x for n, x in leaves.items()]
    return *jax.tree.unflatten(structure, fixed), names


def _known(source: Source, structure: PyTreeDef) -> set[str]:
    """Returns the names of arguments that are static by value in calls of this structure."""
    return source.cache.static_arguments.setdefault(structure, {*source.layouts})


def _warn_unchecked(unchecked: str | None, holds: object) -> None:
    """Says that integers may be wrong where nobody sees it: none of them can be NaN."""
    if unchecked and isinstance(holds, jax.core.Tracer):
        warn_once.warn(
            f"integers may overflow: {unchecked} is computed in 32 bits, and inside of jax.jit or "
            'another transformation nothing checks it; jax.config.update("jax_enable_x64", True) '
            "keeps 64 bits, and model(...) outside of transformations checks",
            UncheckedValues,
        )


def _check_weights(**given: Any) -> None:
    """Raises WrongArguments for what is no dict."""
    for name, arrays in given.items():
        if not isinstance(arrays, Mapping):
            raise WrongArguments(
                f"{name} is a {type(arrays).__name__}, not a dict of arrays by name",
                why="model.apply is a pure function: the weights are an argument, the first one",
                do="call model.apply(model.params, *args, **kwargs), or model(*args, **kwargs)",
            )


def calls(source: Source) -> list[tuple]:
    """Returns an example of every kind of call so far: (args, kwargs, rng)."""
    return [*source.cache.calls.values()]


def _remember(source: Source, kind: call_key.CallKind, arrays, rng) -> None:
    """Keeps the shapes of a call that was traced, for ``save``."""
    kind.fresh, rest = False, iter(arrays)
    shapes = [shape_of(next(rest)) if s is None else _unwrap(s) for s in kind.static]
    key = (kind.structure, tuple(map(str, shapes)), rng is None)
    source.cache.calls.setdefault(key, (*jax.tree.unflatten(kind.structure, shapes), rng))


@program(static_argnames="kind")
def _run(model, kind, arrays, rng):
    state = model.state | {name: constant.array for name, constant in kind.known.value.items()}
    rest = iter(arrays)
    leaves = [next(rest) if s is None else _unwrap(s) for s in kind.static]
    args, kwargs = jax.tree.unflatten(kind.structure, leaves)
    args, kwargs = layouts.opened(args, kwargs, model.source)
    out, written = explicit_mesh.call_on_mesh(model.source, model.params, state, args, kwargs, rng)
    warn_dropped(written, state)
    holds = getattr(written, "holds", None)
    kind.fresh, kind.unchecked = True, getattr(written, "unchecked", None)
    kind.stepped = getattr(written, "stepped", False)
    ordered = trees.keep_order(out)
    kind.wraps |= not all(
        map(trees.is_array, jax.tree.leaves(ordered, is_leaf=lambda x: type(x) is trees.Ordered))
    )
    return jax.tree.map(lambda x: x if trees.is_array(x) else Static(x), ordered), holds


def _pin(leaf: object, by_value: bool) -> Static | None:
    """Returns how a leaf is static, None where it is traced."""
    if not trees.is_array(leaf):
        return Static(leaf)
    return Static(trees.Constant(leaf)) if by_value else None


def _settings(state, by_value: bool) -> tuple[Static, dict[str, Any]]:
    """Returns (the entries of the state that are static, the others)."""
    names = [k for k, v in state.items() if by_value and trees.is_setting(v)]
    constants = {k: trees.Constant(state[k]) for k in names}
    return Static(constants), {k: v for k, v in state.items() if k not in constants}


def _unwrap(leaf: object) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf


def _near_the_end(inputs: PyTree) -> bool:
    """Returns whether there are 64-bit integers to which 32 bits cannot add any small number."""
    wide = (x for x in jax.tree.leaves(inputs) if "int64" in str(getattr(x, "dtype", "")))
    return any(np.abs(np.asarray(x)).max(initial=0) > END for x in wide)


def warn_dropped(written: Mapping[str, PyTree], state: Mapping[str, PyTree]) -> None:
    """Says which entries of the state the next call would miss."""
    missed = getattr(written, "missed", state)
    if lost := [name for name in written if name in missed]:
        shown = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        warn_once.warn(
            f"the forward pass wrote to {shown}, and the new values are dropped: "
            "call model.apply(params, ..., mutable=True) to get them, or use model.eval() if only "
            "training writes there",
            StateDropped,
        )
