"""The protocol of one evaluation, and the registry of handlers: operators that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import jax


class Running(Protocol):
    """One evaluation of a graph and of the functions that it calls."""

    variables: dict[Any, Any]  # a variable -> its value now
    initial: dict[Any, Any]  # the same, before any was assigned
    written: set[Any]
    library: Any  # the functions by name

    def call(
        self, name: str, inputs: Sequence[Any], outputs: Iterable[int] | None = None
    ) -> tuple: ...
    def graph(self, graph: Any, inputs: Sequence[Any]) -> tuple: ...
    def entries(self, vector: Any) -> Any: ...
    def key(self, node: Any) -> jax.Array: ...
    def tapped(self, path: str, value: Any, *how: Any) -> Any: ...
    def is_computed(self, value: Any) -> bool: ...
    def nested(self, rng: jax.Array | None, library: Any = None) -> Any: ...


Handler = Callable[[Any, Any, Sequence[Any]], tuple]
HANDLERS: dict[str, Handler] = {}
OF_STRUCTURES: dict[str, Handler] = {}  # where the input of a lowering is a list


def handles(*ops: str) -> Callable[[Handler], Handler]:
    """Registers ``function(run, node, inputs) -> outputs`` for operators that are more than a
    function of arrays: they call functions, keep state or have their own gradient.
    """

    def add(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, function))
        return function

    return add
