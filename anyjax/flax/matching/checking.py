"""A check that the filled module computes what torch does, or where it begins to differ."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from flax import linen, nnx

from anyjax.compare.recorders.flax_calls import watched
from anyjax.errors import ForwardFailed
from anyjax.flax.matching.agreement import Search
from anyjax.flax.matching.load_errors import different
from anyjax.flax.matching.pairing import Pairing
from anyjax.flax.matching.sides import JaxSide, Values
from anyjax.flax.matching.submodule_runs import (
    Arrays,
    Call,
    arrays,
    closest_difference,
    difference,
)
from anyjax.typing import PyTree


def check_outputs(search: Search, calls: list[Call], notes: list[str]) -> float:
    """Returns the difference of the outputs, as a fraction of the largest value.

    Raises:
      WrongWeights: it is too large; the first submodule that differs is named.
    """
    error = search.distance((), calls[-1], {})
    if error <= search.tolerance:
        return error
    if np.isinf(error) and search.side.error is not None:
        raise ForwardFailed(
            "the flax module does not take the example",
            where="its own forward",
            why=f"it raised {type(search.side.error).__name__}: {search.side.error}",
            do="give the arguments that it takes as example=(...), kwargs={...}",
        ) from search.side.error
    raise different(error, search.tolerance, _first_difference(search, calls), notes)


def _first_difference(search: Search, calls: list[Call]) -> str:
    """Describes the first torch submodule, in order of return, whose counterpart differs."""
    values = search.values({f: choice for f, (choice, _) in search.pairing.decided.items()})
    recorded = _recorded(search, values | dict(search.fixed))
    counterparts: dict[str, list[tuple]] = {}
    for path, name in search.counterparts():
        if path and (path in recorded or not recorded):
            counterparts.setdefault(name, []).append(path)
    if not recorded:
        return _first_different_by_itself(search, calls, counterparts)
    for call in calls[:-1]:
        paths = counterparts.get(call.path, ())
        errors = [(difference(recorded[p][1], call.outputs), p) for p in paths]
        error, path = min(errors, default=(0.0, ()))
        if search.tolerance < error < np.inf:  # shapes may differ where nothing is wrong
            name = "/".join(map(str, path))
            inputs_differ = closest_difference(recorded[path][0], call.inputs) > search.tolerance
            hint = "so do its inputs: look at what is before it"
            hint = hint if inputs_differ else "its inputs agree"
            return f"the outputs of {name} (torch: {call.path}) differ by {error:.2g}; {hint}"
    return "every submodule that has a counterpart agrees: look at the code after them"


def _recorded(search: Search, values: Values) -> dict[tuple, tuple[Arrays, Arrays]]:
    """Runs a Flax model; returns the inputs and outputs of its submodules by path, none of other
    models.
    """
    recorded: dict[tuple, tuple[Arrays, Arrays]] = {}

    def record(path: tuple, call: Callable, args: tuple, kwargs: dict) -> PyTree:
        result = call(*args, **kwargs)
        leaves = jax.tree.leaves((args, kwargs, result))
        if not any(isinstance(x, jax.core.Tracer) for x in leaves):
            recorded.setdefault(path, (arrays((args, kwargs)), arrays(result)))
        return result

    module = search.side.modules[()]
    if isinstance(module, (nnx.Module, linen.Module)) and search.example is not None:
        weights, run = search.side.bind((), values)
        with watched(module, record):
            run(weights, *search.example)
    return recorded


def _first_different_by_itself(
    search: Search, calls: list[Call], counterparts: dict[str, list[tuple]]
) -> str:
    """Describes the first submodule whose counterpart differs for torch's own inputs."""
    for call in calls[:-1]:
        errors = [
            (search.distance(path, call, {}), path) for path in counterparts.get(call.path, ())
        ]
        error, path = min(errors, default=(0.0, ()))
        if search.tolerance < error < np.inf:
            name = "/".join(map(str, path))
            return f"the output of {name} (torch: {call.path}) differs by {error:.2g}"
    return "every submodule that has a counterpart agrees: look at the code after them"


def epsilons(pairing: Pairing, side: JaxSide) -> list[str]:
    """Returns notes on norms whose epsilon is not torch's."""
    notes = []
    for f, (choice, _) in pairing.decided.items():
        layer = side.modules.get(f.path)
        mine = getattr(layer, "epsilon", getattr(layer, "eps", None))
        for name in ("eps", "variance_epsilon"):
            theirs = getattr(choice.torch.module, name, None)
            if isinstance(mine, float) and isinstance(theirs, float) and mine != theirs:
                notes.append(
                    f"{f.shown} has epsilon {mine:g}, torch's {choice.torch.shown} {theirs:g}"
                )
    return notes
