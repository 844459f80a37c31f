"""Whether the filled module computes what torch does, and if not, where it begins to differ."""

from __future__ import annotations

import numpy as np

from tojax.errors import ForwardFailed
from tojax.flax.matching.agreement import Search
from tojax.flax.matching.pairing import Pairing
from tojax.flax.matching.running import Call, Runner
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
    places: dict[str, list[tuple]] = {}
    for path, name in search.counterparts():
        places.setdefault(name, []).append(path)
    found = []
    for call in calls[:-1]:
        off = [(search.distance(p, call, {}), p) for p in places.get(call.path, ()) if p]
        closest = min(off, default=(np.inf, ()))
        if search.tolerance < closest[0] < np.inf:
            found.append((closest[1], call, closest[0]))
    raise different(error, search.tolerance, found, notes)


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
