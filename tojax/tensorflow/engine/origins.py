"""Which arguments of the model the values of a graph are computed from, for errors about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax

from tojax.errors import DataDependent
from tojax.stablehlo.core.static_values import is_known

Origin = frozenset[str]
NONE: Origin = frozenset()
PASSING = {  # their outputs are those of one function
    "PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "Case", "StatelessCase",
}  # fmt: skip
CONCRETIZATION = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Origins:
    """The inputs of the node that is being computed, and what each is computed from."""

    def __init__(self, values: Sequence[Any] = (), origins: Sequence[Origin] = ()):
        self.values, self.origins = values, origins
        self.returned: list[Origin] = []  # of the function that returned last

    def enter(self, values: Sequence[Any], origins: Sequence[Origin]) -> None:
        """Another node begins."""
        self.values, self.origins, self.returned = values, origins, []

    def of_outputs(self, node: Any, outputs: Sequence[Any]) -> list[Origin]:
        """Those of the outputs of the node that was computed."""
        if node.op in PASSING and len(self.returned) == len(outputs):
            return self.returned
        found = self.all()
        return [found if isinstance(x, jax.core.Tracer) else NONE for x in outputs]

    def all(self) -> Origin:
        """Everything that the inputs are computed from."""
        traced = [o for x, o in zip(self.values, self.origins) if o and not is_known(x)]
        return traced[0] if len(traced) == 1 else NONE.union(*traced)

    def of_operands(self, operands: Sequence[Any]) -> list[Origin]:
        """Those of what a function is called with: inputs of the node, or what a loop has made of
        them by now.
        """
        by_id = {id(x): o for x, o in zip(self.values, self.origins)}
        rest = self.origins if len(operands) == len(self.origins) else None
        other = self.all()
        return [by_id.get(id(x), rest[i] if rest else other) for i, x in enumerate(operands)]

    def name(self, error: Exception) -> Exception:
        """The error with the names of the arguments that a traced value in it comes from."""
        if isinstance(error, CONCRETIZATION):
            error = _data_dependent(error)
        if not isinstance(error, DataDependent) or error.arguments:
            return error
        found = [o for x, o in zip(self.values, self.origins) if x is error.value]
        found = found or self._of_integers() or [self.all()]
        if names := tuple(sorted(NONE.union(*found))):
            why = f"{_listed(names)} decided it. {error.why}"
            DataDependent.__init__(
                error, error.what, arguments=names, where=error.where, why=why, do=error.do
            )
        return error

    def _of_integers(self) -> list[Origin]:
        pairs = zip(self.values, self.origins)
        whole = [o for x, o in pairs if isinstance(x, jax.core.Tracer) and x.dtype.kind in "iub"]
        return [o for o in whole if o]


def _data_dependent(error: Exception) -> DataDependent:
    made = DataDependent(
        "the program depends on a value that is computed from its inputs",
        why="JAX compiles a program for fixed shapes and Python values",
        do="pass what decides it as a numpy array that no transformation traces",
    )
    made.__cause__ = error
    return made


def _listed(names: Iterable[str]) -> str:
    return " and ".join(names)
