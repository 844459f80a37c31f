"""Arrays held as 8 or 4 bits a number and a scale for each block, and a source that opens them.

The numbers are qwix's; two of 4 bits share a byte, because XLA's CPU arrays of int4 take one each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tojax.errors import MissingDependency, WrongValue
from tojax.wrapped import Arrays, Wrapped


class Scheme(NamedTuple):
    """The dtype of qwix's numbers, and how many of them share a scale if nothing is said."""

    dtype: Any
    block: int | None  # None: those of a row

    @property
    def narrow(self) -> bool:
        """Whether two fit into a byte."""
        return self.dtype != jnp.int8


SCHEMES = {
    "int8": Scheme(jnp.int8, None),
    "int4": Scheme(jnp.int4, 64),
    "nf4": Scheme(jnp.uint4, 64),  # codes of sixteen quantiles of a normal distribution
}


@dataclass(frozen=True)
class Packed:
    """How the array ``name`` of this shape and dtype is held: as ``parts``, in rows of its first
    axis, in which each ``block`` has a scale.
    """

    name: str
    scheme: str
    block: int
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, name: str, array: jax.Array, scheme: str, block: int | None) -> Packed:
        """The form of this array.

        Raises:
          WrongValue: its rows cannot be cut into such blocks.
        """
        kind, row = SCHEMES[scheme], array.size // array.shape[0]
        size = block or kind.block or row
        if size < 1 or row % size or (kind.narrow and row % 2):
            raise WrongValue(
                f"{name} has rows of {row} numbers, which blocks of {size} do not divide",
                where=f"{scheme} of shape {array.shape}",
                why="each block has a scale" + (", a byte two numbers" if kind.narrow else ""),
                do="give block=, a divisor of all rows, or targets= that leave it out",
            )
        return cls(name, scheme, size, array.shape, np.dtype(array.dtype))

    @property
    def parts(self) -> tuple[str, str]:
        """The names of numbers and scales."""
        return f"{self.name}.{self.scheme}", f"{self.name}.scale"

    @property
    def ndim(self) -> int:
        """Axes of the array."""
        return len(self.shape)

    def closed(self, array: jax.Array) -> dict[str, jax.Array]:
        """The parts: int8 or uint8 [rows, row or row / 2], float32 [rows, row / block]."""
        rows = jnp.reshape(array, (self.shape[0], -1)).astype(jnp.float32)
        found = library().quantize(
            rows, self.scheme, channelwise_axes=(0,), tiled_axes={1: self.block}
        )
        values = found.qvalue
        if SCHEMES[self.scheme].narrow:
            pairs = values.reshape(len(values), -1, 2)
            values = jax.lax.bitcast_convert_type(pairs, jnp.uint8)
        return dict(zip(self.parts, (values, found.scale)))

    def __call__(self, state: Arrays) -> jax.Array:
        """The array again, each number rounded to one of its scheme."""
        values, scale = (state[part] for part in self.parts)
        kind = SCHEMES[self.scheme]
        if kind.narrow:
            values = jax.lax.bitcast_convert_type(values, kind.dtype).reshape(len(scale), -1)
        found = library().QArray(values, scale, qtype=self.scheme)
        return library().dequantize(found).reshape(self.shape).astype(self.dtype)


def opened(packed: Iterable[Packed], state: Arrays) -> tuple[dict, dict]:
    """(the arrays by name, what else is in the state)."""
    held = {part for each in packed for part in each.parts}
    rest = {k: v for k, v in state.items() if k not in held}
    return {each.name: each(state) for each in packed}, rest


@dataclass(frozen=True, eq=False)
class Quantized(Wrapped):
    """Calls ``base``, some of whose params its state holds in packed form."""

    packed: tuple[Packed, ...]

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """(params, state) of the base."""
        arrays, rest = opened(self.packed, state)
        return {**params, **arrays}, rest


def library() -> Any:
    """qwix.

    Raises:
      MissingDependency: it is not installed.
    """
    try:
        import qwix
    except ImportError as error:
        raise MissingDependency(
            "qwix is not installed",
            why="quantized numbers are its",
            do="pip install qwix, or tojax[train]",
        ) from error
    return qwix
