"""What the engine offers to operators that need more than their inputs, and where they register."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import jax


class Running(Protocol):
    """One evaluation of a graph and of the functions that it calls."""

    variables: dict[Any, Any]  # a variable -> its value now
    before: Mapping[Any, Any]  # the same, before any was assigned
    written: set[Any]
    library: Mapping[str, Any]

    def call(
        self, name: str, inputs: Sequence[Any], wanted: Iterable[int] | None = None
    ) -> tuple: ...
    def entries(self, vector: Any) -> Any: ...
    def key(self, node: Any) -> jax.Array: ...
    def inside(self, rng: jax.Array | None, library: Any = None) -> Any: ...


Handler = Callable[[Any, Any, Sequence[Any]], tuple]
HANDLERS: dict[str, Handler] = {}
OF_STRUCTURES: dict[str, Handler] = {}  # where the input of a lowering is a list


def handles(*ops: str) -> Callable[[Handler], Handler]:
    """Decorator: ``function(run, node, inputs) -> outputs`` serves operators that no table of
    lowerings can: they call functions, keep state or have a gradient of their own.
    """

    def add(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, function))
        return function

    return add
