"""A side of a comparison: what computes the values of all modules of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from anyjax.typing import PyTree

OUTPUT = ""  # the path of the model itself
DROPOUT = "dropout, with torch's masks on both sides"
REORDERED = "rows in another order"
NO_KERNEL = "TensorFlow has no kernel for it on a CPU"
INPUTS = " inputs"  # after a path: what the module is called with
STATE = " state "  # after a path: a buffer of the module that the call writes, by its name
NUMBERS = " numbers"  # the model's own outputs that are no floats, as floats


@dataclass(frozen=True)
class Call:
    """The arguments of a model's call, and its key for random numbers."""

    args: tuple
    kwargs: Mapping[str, PyTree]
    rng: jax.Array | None = None


Values = Mapping[str, list[np.ndarray]]


@dataclass(frozen=True)
class Passed:
    """One forward pass.

    Attributes:
      values: floating-point outputs by module path, and inputs by the path, ``INPUTS`` and
        their place, in the order of execution; the model's own outputs are last, under ``OUTPUT``.
        Inputs are integers and bools, too, by ``whole_numbers``, and the floats of caches.
      seconds: the time that it took.
      narrow: paths of what the side could not compute itself, in 64 bits or at all.
      call: the outputs of the framework's own call, where ``values`` come from the engine that
        computes node after node.
      fixed: the inputs that others do not take the place of, integers and objects such as caches.
        Each has the first input that is the same object, which alone needs to be in ``values``.
      dtypes: of the model's own outputs, as JAX has them; none where a side does not tell.
      writable: names of the buffers that a call could write.
    """

    values: Values
    seconds: float = 0.0
    narrow: frozenset[str] = frozenset()
    call: list[np.ndarray] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    writable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Passes:
    """The forward passes of a comparison.

    Attributes:
      expected, actual: of the reference and of the model, each on its own.
      added: of the model, given ``expected``.
      judge: of the reference in 64 bits, given ``expected``; None where it has none.
      alone_in_64_bits: of both, given nothing, where their own outputs are far apart.
      wide: of the model in 64 bits, given ``expected``.
      excluded: modules that are not compared, and why.
    """

    expected: Passed
    actual: Passed
    added: Passed
    judge: Passed | None
    wide: Passed | None
    excluded: Mapping[str, str] = field(default_factory=dict)
    alone_in_64_bits: tuple[Passed, Passed] | None = None

    def alone(self) -> list[str]:
        """Returns the paths, with those of inputs, that some pass does not have."""
        return [k for k in self.expected.values if STATE not in k and self.lacks(k)]

    def lacks(self, path: str) -> bool:
        """Returns whether some pass does not have a path of the reference."""
        passes = [self.actual, self.added, *filter(None, (self.judge, self.wide))]
        return any(path not in x.values for x in passes)


class Side(Protocol):
    """A model that runs with one call's arguments."""

    name: str
    masked: frozenset[str]  # modules with random masks, whose outputs go to the other side

    def forward(self, wide: bool = False, forced: Values | None = None) -> Passed:
        """Runs the model.

        Args:
          wide: compute in 64 bits.
          forced: values that take the place of modules' outputs after these are noted, so that
            every module sees the same inputs as in the pass that they come from.
        """

    def gradients(self, cotangents: list[np.ndarray], wide: bool = False) -> Passed:
        """Computes the gradient of the sum of outputs times ``cotangents``: with respect to params
        by name, the last first, and to inputs by name; of unused ones there is none.
        """

    def kinds(self) -> dict[str, str]:
        """Returns the class of each module, by path."""


def numbers(arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Returns integers, bools and complex numbers among outputs as floats."""
    exact = [x for x in arrays if x.dtype.kind in "iubc"]
    floats = (y for x in exact for y in ([x.real, x.imag] if x.dtype.kind == "c" else [x]))
    return [x if is_float(x.dtype) else np.asarray(x, np.float64) for x in floats]


def whole_numbers(array: np.ndarray) -> list[np.ndarray]:
    """Returns integers or bools as floats that are compared; none where JAX may hold fewer bits."""
    numbers = np.asarray(array, np.float64)
    return [numbers] if np.abs(numbers).max(initial=0) < 2**31 else []


def state_name(name: str) -> str:
    """Returns the path of what a call writes, of a buffer's name.

    Example:
      >>> state_name("layers.0.running_mean")
      'layers.0 state running_mean'
    """
    path, _, buffer = name.rpartition(".")
    return f"{path}{STATE}{buffer}"


def state_values(array: np.ndarray) -> list[np.ndarray]:
    """Returns a buffer's values as floats that are compared."""
    return whole_numbers(array) if array.dtype.kind in "iub" else [array]


def dtype_names(dtypes: Iterable[DTypeLike]) -> tuple[str, ...]:
    """Returns names of dtypes, without the bits that JAX may not have.

    Example:
      >>> dtype_names([np.dtype("int64"), np.float32])
      ('int32', 'float32')
    """
    fewer = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
    names = (x if isinstance(x, str) else jnp.dtype(x).name for x in dtypes)
    return tuple(fewer.get(x, x) for x in names)


def input_name(number: int) -> str:
    """Returns the name of a floating-point input in gradients."""
    return f"input {number}"


def is_float(dtype: DTypeLike) -> bool:
    """Returns True for floating-point dtypes, of bfloat16 and the like, too."""
    return np.dtype(dtype).kind in "fV" or np.dtype(dtype).name.startswith(("bfloat", "float"))


class ModelSide(Side, Protocol):
    """The side that is judged.

    Attributes:
      args, kwargs: of the call, as JAX takes them.
      model_name, unit: its name in reports, and what its parts are called.
      has_wide: whether it runs in 64 bits, too.
      op_by_op: whether it is to keep the values of one part at a time in memory.
      expected: the reference's values that may take the place of others, once they are there.
    """

    args: tuple
    kwargs: Mapping[str, PyTree]
    model_name: str
    unit: str
    has_wide: bool
    op_by_op: bool
    expected: Values

    def code_line(self, path: str) -> str:
        """Returns the line of code where a part is written, or ""."""
