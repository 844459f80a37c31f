"""The registry of handlers: operators that need more than the values of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from anyjax.typing import PyTree

if TYPE_CHECKING:
    import jax

    from anyjax.onnx.core.nodes import Graph, Node


class Running(Protocol):
    """One evaluation of a graph."""

    rng: jax.Array | None

    def nested(
        self, graph: Graph, inputs: Sequence[PyTree], rng: jax.Array | None
    ) -> list[Any]: ...
    def key(self, node: Node) -> jax.Array: ...


Handler = Callable[[Any, Any, Sequence[Any]], Sequence[Any]]
HANDLERS: dict[str, Handler] = {}


def handles(*ops: str) -> Callable[[Handler], Handler]:
    """Registers ``function(run, node, inputs) -> outputs`` for operators that evaluate graphs, or
    whose values are no arrays.
    """

    def add(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, function))
        return function

    return add
