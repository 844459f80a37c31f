"""Arrays held as 8 or 4 bits a number and a scale for each block, and a source that opens them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.calls.wrapped import Arrays, Wrapped
from tojax.errors import MissingDependency, WrongValue
from tojax.numerics import packed_matrix
from tojax.transforms.numbers import LOADED, Scheme, pairs

UNROLLED = 16  # numbers of a column in one kernel of a product: more are too many streams to read


@dataclass(frozen=True)
class Packed:
    """How the array ``name`` of this shape and dtype is held: as ``parts``, in rows of its first
    axis, in which each ``block`` has a scale.

    The parts have those rows as columns, so that a product with one vector adds up whole vectors
    of results.
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
        kind, row = LOADED[scheme], array.size // array.shape[0]
        size = (kind.block or row) if block is None else block
        if size < 1 or row % size or size % kind.per:
            raise WrongValue(
                f"{name} has rows of {row} numbers, which blocks of {size} do not divide",
                where=f"{scheme} of shape {array.shape}",
                why="each block has a scale" + (", a byte two numbers" if kind.per > 1 else ""),
                do="give block=, a divisor of all rows, or targets= that leave it out",
            )
        return cls(name, scheme, size, array.shape, np.dtype(array.dtype))

    @property
    def kind(self) -> Scheme:
        """How its numbers are stored."""
        return LOADED[self.scheme]

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of numbers, scales and, where there are some, zeros."""
        zero = (f"{self.name}.zero",) if self.kind.zero else ()
        return f"{self.name}.{self.scheme}", f"{self.name}.scale", *zero

    @property
    def ndim(self) -> int:
        """Axes of the array."""
        return len(self.shape)

    @property
    def row(self) -> int:
        """Numbers in a row."""
        return math.prod(self.shape[1:])

    def closed(self, array: jax.Array) -> dict[str, jax.Array]:
        """The parts: numbers int8 or uint8 [row or row / 2, rows], scales float32
        [row / block, rows].
        """
        rows = jnp.reshape(array, (self.shape[0], -1)).astype(jnp.float32)
        found = library().quantize(
            rows, self.kind.rounds, channelwise_axes=(0,), tiled_axes={1: self.block}
        )
        values, scale = found.qvalue, found.scale
        if self.scheme == "fp8":
            values = lax.bitcast_convert_type(values, jnp.uint8)
        if self.kind.bits == 4:
            values = values.astype(jnp.uint8 if self.scheme == "nf4" else jnp.int8)
        values = pairs(values.T) if self.kind.bits == 4 else values.T
        return dict(zip(self.parts, (values, scale.T)))

    def __call__(self, state: Arrays) -> jax.Array:
        """The array again, each number rounded to one of its scheme."""
        columns = self.opened(*(state[part] for part in self.parts))
        return columns.T.reshape(self.shape).astype(self.dtype)

    def opened(self, values: jax.Array, scale: jax.Array, *zero: jax.Array) -> jax.Array:
        """float32 columns of these parts, which may be those of a few rows."""
        blocks = jnp.stack(self.kind.numbers(values), 1).reshape(len(scale), -1, scale.shape[1])
        for x in zero:
            blocks -= x[:, None].astype(jnp.float32)
        return (blocks * scale[:, None].astype(jnp.float32)).reshape(self.row, -1)


@dataclass(frozen=True)
class Short:
    """The shortcuts of a matrix of this form with these parts."""

    form: Packed
    parts: tuple[jax.Array, ...]

    def rows(self, indices: jax.Array) -> jax.Array:
        """``matrix[indices]``."""
        form, flat = self.form, indices.reshape(-1)
        rows = form.opened(*(jnp.take(x, flat, 1, mode="clip") for x in self.parts)).T
        return rows.reshape(*indices.shape, form.row).astype(form.dtype)

    def product(self, x: jax.Array) -> jax.Array | None:
        """``x @ matrix.T`` for one vector on a CPU, without a float copy of the matrix, which would
        take ten times as long.

        On other platforms XLA opens numbers while it multiplies; the process's own one decides.
        """
        form = self.form
        step = math.gcd(form.block, UNROLLED)
        if x.size != form.row or step < 8 or jax.default_backend() != "cpu":
            return None
        vector = x.reshape(-1).astype(jnp.float32)
        return self._summed(vector, step).reshape(*x.shape[:-1], -1).astype(x.dtype)

    def _summed(self, vector: jax.Array, step: int) -> jax.Array:
        """Adds up columns, first ``step`` numbers of each in one kernel, then those sums."""
        # Else a decoding loop opens the matrix once, before it: there it would lie as float32.
        vector, (values, scale, *zero) = lax.optimization_barrier((vector, self.parts))
        kind = self.form.kind
        sums = vector.size // step
        stored = values.reshape(sums, step // kind.per, -1)
        factors = vector.reshape(sums, step, 1)
        every = lambda x: jnp.repeat(x.astype(jnp.float32), sums // len(x), 0)
        null = every(zero[0]) if zero else None
        out: Any = 0.0
        for j in range(step // kind.per):
            for k, number in enumerate(kind.numbers(stored[:, j])):
                out += (number if null is None else number - null) * factors[:, j * kind.per + k]
        return jnp.ones(sums) @ (out * every(scale))


def opened(packed: Iterable[Packed], state: Arrays) -> tuple[dict, dict]:
    """(the arrays by name, what else is in the state)."""
    packed = tuple(packed)
    held = {part for each in packed for part in each.parts}
    rest = {k: v for k, v in state.items() if k not in held}
    arrays = {}
    for each in packed:
        arrays[each.name] = array = each(state)
        if each.ndim == 2:
            packed_matrix.register(array, Short(each, tuple(state[part] for part in each.parts)))
    return arrays, rest


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
