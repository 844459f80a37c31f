"""Whether the filled module computes what torch does, and if not, where it begins to differ."""

from __future__ import annotations

import numpy as np

from tojax.errors import ForwardFailed
from tojax.flax.matching.agreement import Search
from tojax.flax.matching.pairing import Pairing
from tojax.flax.matching.running import Call, Runner, difference, unequal
from tojax.flax.matching.trouble import different


def check(search: Search, calls: list[Call], notes: list[str]) -> float:
    """The difference of the outputs, as a fraction of the largest value.

    Raises:
      WrongWeights: it is too large; the first submodule that differs is named.
    """
    error = search.distance((), calls[-1], {})
    if error <= search.tolerance:
        return error
    if np.isinf(error) and search.runner.error is not None:
        raise ForwardFailed(
            "the flax module does not take the example",
            where="its own forward",
            why=f"it raised {type(search.runner.error).__name__}: {search.runner.error}",
            do="give the arguments that it takes as example=(...), kwargs={...}",
        ) from search.runner.error
    raise different(error, search.tolerance, _first(search, calls), notes)


def _first(search: Search, calls: list[Call]) -> str:
    """The first submodule of torch's, as they return, whose counterpart gives something else."""
    values = search.values({f: choice for f, (choice, _) in search.pairing.decided.items()})
    assert search.example is not None
    seen = search.runner.watched(values | dict(search.fixed), search.example)
    places: dict[str, list[tuple]] = {}
    for path, name in search.counterparts():
        if path and path in seen:
            places.setdefault(name, []).append(path)
    for call in calls[:-1]:
        off = [(difference(seen[p][1], call.outputs), p) for p in places.get(call.path, ())]
        error, path = min(off, default=(0.0, ()))
        if search.tolerance < error < np.inf:  # shapes may differ where nothing is wrong
            name = "/".join(map(str, path))
            before = unequal(seen[path][0], call.inputs) > search.tolerance
            rest = "so do its inputs: look at what is before it" if before else "its inputs agree"
            return f"the outputs of {name} (torch: {call.path}) differ by {error:.2g}; {rest}"
    return "every submodule that has a counterpart agrees: look at the code after them"


def epsilons(pairing: Pairing, runner: Runner) -> list[str]:
    """Norms whose epsilon is not torch's."""
    found = []
    for f, (choice, _) in pairing.decided.items():
        mine = getattr(runner.modules.get(f.path), "epsilon", None)
        for name in ("eps", "variance_epsilon"):
            theirs = getattr(choice.torch.module, name, None)
            if isinstance(mine, float) and isinstance(theirs, float) and mine != theirs:
                found.append(
                    f"{f.shown} has epsilon {mine:g}, torch's {choice.torch.shown} {theirs:g}"
                )
    return found
