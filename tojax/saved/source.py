"""What a loaded model calls: the program for the kind of call."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from tojax import trees
from tojax.dtypes import fitting
from tojax.errors import DataDependent, Unsupported, WrongArguments
from tojax.program import Kept
from tojax.saved.calls import describe_call, join, misfit


@dataclass(frozen=True, eq=False)
class SavedSource:
    """Programs by kind of call, and further ones by name: (what is written about it, program).

    The training mode is the one they were saved in.
    """

    framework: str
    name: str
    positional: list[str]
    training: tuple[bool, ...]
    calls: list[dict[str, Any]]
    programs: list[Any] = field(repr=False)
    extras: dict[str, tuple[dict[str, Any], Any]] = field(default_factory=dict, repr=False)
    kept: Kept = field(default_factory=Kept, repr=False)

    module = None

    @property
    def signature(self) -> inspect.Signature:
        """The arguments that may be given by position."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n in self.positional])

    def as_array(self, leaf: Any) -> Any:
        """Inputs are arrays already."""
        return fitting(leaf) if isinstance(leaf, np.ndarray) else leaf

    def in_mode(self, training: bool) -> SavedSource:
        """The same, if it was saved in this mode."""
        if any(t != training for t in self.training):
            raise Unsupported(
                "a saved model has one mode",
                why="its programs are compiled",
                do="save the other mode, too",
            )
        return self

    def write_back(self, params, state):
        """There is no module."""
        raise Unsupported(
            "a saved model has no torch module",
            why="it runs without torch",
            do="keep the checkpoint it came from",
        )

    def __call__(self, params, state, args, kwargs, rng=None):
        """Runs the program for this kind of call."""
        leaves, names = jax.tree.leaves((args, kwargs)), trees.names(args, kwargs, self.positional)
        call, program = self._chosen(leaves, names)
        _check_known(call.get("known", {}), state)
        given = dict(zip(names, leaves))  # by position or by name: the program has its own order
        arrays = [given[name] for name in call["inputs"] if trees.is_array(given[name])]
        key = None if rng is None else jax.random.key_data(rng)
        flat, written = program.call(dict(params), dict(state), arrays, key)
        return join(call["output"], flat), written

    def _chosen(self, leaves: list[Any], names: list[str]) -> tuple[dict[str, Any], Any]:
        """The call that was saved with these shapes, or else the first one whose sizes fit."""
        found = [misfit(call, leaves, names) for call in self.calls]
        asked = describe_call(leaves, names)
        order = sorted(range(len(found)), key=lambda i: self.calls[i]["inputs"] != asked)
        for i in order:
            if found[i] is None:
                return self.calls[i], self.programs[i]
        told = [f"{_shown(c)}: {why}" for c, why in zip(self.calls, found)]
        raise WrongArguments(
            f"no program was saved for {json.dumps(asked)}",
            why="saved are " + "; ".join(told),
            do="save it again with an example of this call: model.save(folder, *args, **kwargs), "
            'for any size shapes={"input_ids": "batch, length"}',
        )


def _shown(call: dict[str, Any]) -> str:
    constraints = call.get("constraints", [])
    return json.dumps(call["inputs"]) + (f" with {', '.join(constraints)}" if constraints else "")


def _check_known(known: dict[str, Any], state) -> None:
    """Raises where the state has other values than the program was made for, or unknown ones."""
    for name, value in known.items():
        if isinstance(state[name], jax.core.Tracer):
            raise DataDependent(
                f"the saved program has {name} = {value}",
                arguments=(trees.STATE,),
                why="shapes depend on it, so it is no argument of the program",
                do="close over the state instead of tracing it",
            )
        if np.asarray(state[name]).tolist() != value:
            raise WrongArguments(
                f"{name} is {np.asarray(state[name]).tolist()}, in the saved program {value}",
                why="shapes depend on it, so it is no argument of the program",
                do="save the model again with the new value",
            )
