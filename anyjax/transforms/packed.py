"""Quantized arrays of 8 or 4 bits a number with a scale for each block, and their source."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.calls.wrapped import Arrays, Wrapped
from anyjax.errors import WrongValue, imports_of
from anyjax.numerics import packed_matrix
from anyjax.transforms.numbers import LOADED, Scheme, pairs

UNROLLED = 16  # numbers of a column in one kernel of a product; more would be too many streams


@dataclass(frozen=True)
class Packed:
    """The packed form of the array ``name`` of this shape and dtype: its ``parts`` are numbers and
    scales, one scale for each ``block`` of a row of its first axis.

    The parts have these rows as columns, so that a product with a vector adds up vectors of
    results.
    """

    name: str
    scheme: str
    block: int
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, name: str, array: jax.Array, scheme: str, block: int | None) -> Packed:
        """Returns the packed form of this array.

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
        """The storage format of its numbers."""
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

    def pack(self, array: jax.Array) -> dict[str, jax.Array]:
        """Returns the parts: numbers int8 or uint8 [row or row / 2, rows], scales float32
        [row / block, rows].
        """
        rows = jnp.reshape(array, (self.shape[0], -1)).astype(jnp.float32)
        quantized = qwix().quantize(
            rows, self.kind.rounds, channelwise_axes=(0,), tiled_axes={1: self.block}
        )
        values, scale = quantized.qvalue, quantized.scale
        if self.scheme == "fp8":
            values = lax.bitcast_convert_type(values, jnp.uint8)
        if self.kind.bits == 4:
            values = values.astype(jnp.uint8 if self.scheme == "nf4" else jnp.int8)
        values = pairs(values.T) if self.kind.bits == 4 else values.T
        return dict(zip(self.parts, (values, scale.T)))

    def __call__(self, state: Arrays) -> jax.Array:
        """Returns the dequantized array."""
        columns = self.opened(*(state[name] for name in self.parts))
        return columns.T.reshape(self.shape).astype(self.dtype)

    def opened(self, values: jax.Array, scale: jax.Array, *zero: jax.Array) -> jax.Array:
        """Returns the float32 columns of these parts, which may be slices for some rows."""
        blocks = jnp.stack(self.kind.numbers(values), 1).reshape(len(scale), -1, scale.shape[1])
        for x in zero:
            blocks -= x[:, None].astype(jnp.float32)
        return (blocks * scale[:, None].astype(jnp.float32)).reshape(self.row, -1)


@dataclass(frozen=True)
class Short:
    """Lookups and products of a packed matrix that do not unpack all of it."""

    form: Packed
    parts: tuple[jax.Array, ...]

    def rows(self, indices: jax.Array) -> jax.Array:
        """Returns ``matrix[indices]``."""
        form, flat = self.form, indices.reshape(-1)
        rows = form.opened(*(jnp.take(x, flat, 1, mode="clip") for x in self.parts)).T
        return rows.reshape(*indices.shape, form.row).astype(form.dtype)

    def product(self, x: jax.Array) -> jax.Array | None:
        """Returns ``x @ matrix.T`` for one vector on a CPU, None otherwise. A float copy of the
        matrix would take ten times as long.

        On other platforms XLA dequantizes while it multiplies. The default backend decides.
        """
        form = self.form
        step = math.gcd(form.block, UNROLLED)
        if x.size != form.row or step < 8 or jax.default_backend() != "cpu":
            return None
        vector = x.reshape(-1).astype(jnp.float32)
        return self._sum_columns(vector, step).reshape(*x.shape[:-1], -1).astype(x.dtype)

    def _sum_columns(self, vector: jax.Array, step: int) -> jax.Array:
        """Adds up columns: ``step`` numbers of each in one kernel, then the sums."""
        # Without it XLA would hoist a float32 copy of the matrix out of a decoding loop.
        vector, (values, scale, *zero) = lax.optimization_barrier((vector, self.parts))
        kind = self.form.kind
        sums = vector.size // step
        stored = values.reshape(sums, step // kind.per, -1)
        factors = vector.reshape(sums, step, 1)
        per_sum = lambda x: jnp.repeat(x.astype(jnp.float32), sums // len(x), 0)
        null = per_sum(zero[0]) if zero else None
        out: Any = 0.0
        for j in range(step // kind.per):
            for k, number in enumerate(kind.numbers(stored[:, j])):
                out += (number if null is None else number - null) * factors[:, j * kind.per + k]
        return jnp.ones(sums) @ (out * per_sum(scale))


def opened(packed: Iterable[Packed], state: Arrays) -> tuple[dict, dict]:
    """Returns (the dequantized arrays by name, the state without their parts)."""
    packed = tuple(packed)
    part_names = {name for form in packed for name in form.parts}
    arrays = {}
    for form in packed:
        arrays[form.name] = array = form(state)
        if form.ndim == 2:
            packed_matrix.register(array, Short(form, tuple(state[name] for name in form.parts)))
    return arrays, {k: v for k, v in state.items() if k not in part_names}


@dataclass(frozen=True, eq=False)
class Quantized(Wrapped):
    """A source that calls ``base`` with dequantized params, which are packed in the state."""

    packed: tuple[Packed, ...]

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """Returns (params, state) of the base."""
        arrays, state = opened(self.packed, state)
        return {**params, **arrays}, state


def qwix() -> ModuleType:
    """Imports qwix.

    Raises:
      MissingDependency: it is not installed.
    """
    with imports_of("anyjax.transforms.quantize"):
        import qwix
    return qwix
