"""Origins of values: the model's arguments that they are computed from, which errors name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jax
import numpy as np

from anyjax.errors import DataDependent

Origin = frozenset[str]
NONE: Origin = frozenset()
KNOWN = (np.ndarray, np.generic)
CONCRETIZATION = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Origins:
    """The inputs of the current node, and the origins of each."""

    def __init__(self, values: Sequence[object] = (), origins: Sequence[Origin] = ()):
        self.values, self.origins = values, origins
        self.returned: list[Origin] = []  # of the function that returned last

    def enter(self, values: Sequence[object], origins: Sequence[Origin]) -> None:
        """Starts another node."""
        self.values, self.origins, self.returned = values, origins, []

    def of_outputs(self, outputs: Sequence[object], passing: bool) -> list[Origin]:
        """Returns the origins of the outputs of the current node, which are those of a function if
        it is ``passing`` them.
        """
        if passing and len(self.returned) == len(outputs):
            return self.returned
        origins = self.all()
        return [origins if isinstance(x, jax.core.Tracer) else NONE for x in outputs]

    def all(self) -> Origin:
        """Returns the origins of all inputs together."""
        traced = [o for x, o in zip(self.values, self.origins) if o and not isinstance(x, KNOWN)]
        return traced[0] if len(traced) == 1 else NONE.union(*traced)

    def of_operands(self, operands: Sequence[object]) -> list[Origin]:
        """Returns the origins of a function's operands: inputs of the node, or values that a loop
        has made of them.
        """
        by_id = {id(x): o for x, o in zip(self.values, self.origins)}
        same_count = len(operands) == len(self.origins)
        defaults = self.origins if same_count else [self.all()] * len(operands)
        return [by_id.get(id(x), default) for x, default in zip(operands, defaults)]

    def name(self, error: Exception) -> Exception:
        """Returns the error with the names of the arguments that its traced value comes from."""
        if isinstance(error, CONCRETIZATION):
            error = _data_dependent(error)
        if not isinstance(error, DataDependent) or error.arguments:
            return error
        origins = [o for x, o in zip(self.values, self.origins) if x is error.value]
        origins = origins or self._of_integers() or [self.all()]
        if names := tuple(sorted(NONE.union(*origins))):
            why = f"{_listed(names)} decided it. {error.why}"
            DataDependent.__init__(
                error, error.what, arguments=names, where=error.where, why=why, do=error.do
            )
        return error

    def _of_integers(self) -> list[Origin]:
        pairs = zip(self.values, self.origins)
        exact = [o for x, o in pairs if isinstance(x, jax.core.Tracer) and x.dtype.kind in "iub"]
        return [o for o in exact if o]


def _data_dependent(error: Exception) -> DataDependent:
    data_dependent = DataDependent(
        "the program depends on a value that is computed from its inputs",
        why="JAX compiles a program for fixed shapes and Python values",
        do="pass what decides it as a numpy array that no transformation traces",
    )
    data_dependent.__cause__ = error
    return data_dependent


def _listed(names: Iterable[str]) -> str:
    return " and ".join(names)
