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

from tojax import shortcuts
from tojax.errors import MissingDependency, WrongValue
from tojax.transforms.numbers import LOADED, Scheme, pairs
from tojax.wrapped import Arrays, Wrapped

UNROLLED = 16  # rows of bytes that one round of a product takes: more are too many streams to read


@dataclass(frozen=True)
class Packed:
    """How the array ``name`` of this shape and dtype is held: as ``parts``, in rows of its first
    axis, in which each ``block`` has a scale.

    The parts have those rows as columns, so that a product with one vector adds up whole vectors
    of results; but int8 with one scale a row, which XLA:CPU's library multiplies as it lies.
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
        size = block or kind.block or row
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

    @property
    def by_column(self) -> bool:
        """Whether the parts have rows as columns."""
        return not (self.scheme == "int8" and self.block == self.row)

    def closed(self, array: jax.Array) -> dict[str, jax.Array]:
        """The parts: numbers int8 or uint8 [row or row / 2, rows], scales float32
        [row / block, rows]; of int8 with one scale a row int8 [rows, row] and float32 [rows, 1].
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
        if self.by_column:
            values, scale = values.T, scale.T
        if self.kind.bits == 4:
            values = pairs(values)
        return dict(zip(self.parts, (values, scale)))

    def __call__(self, state: Arrays) -> jax.Array:
        """The array again, each number rounded to one of its scheme."""
        values, *rest = (state[part] for part in self.parts)
        axis = 0 if self.by_column else 1
        rows = self._opened(values, *rest, axis=axis)
        return (rows.T if self.by_column else rows).reshape(self.shape).astype(self.dtype)

    def _opened(self, values, scale, zero=None, axis=0) -> jax.Array:
        """float32 numbers of columns (axis 0) or rows (axis 1)."""
        out = jnp.stack(self.kind.numbers(values), 1) if axis == 0 else values.astype(jnp.float32)
        if axis == 0:
            out = out.reshape(scale.shape[0], -1, out.shape[-1])
            out = out if zero is None else out - zero[:, None].astype(jnp.float32)
            return (out * scale[:, None].astype(jnp.float32)).reshape(self.row, -1)
        return out * scale.astype(jnp.float32)


@dataclass(frozen=True)
class Short:
    """The shortcuts of a matrix of this form with these parts."""

    form: Packed
    parts: tuple[jax.Array, ...]

    def rows(self, indices: jax.Array) -> jax.Array:
        """``matrix[indices]``."""
        form, flat = self.form, indices.reshape(-1)
        axis = 1 if form.by_column else 0
        taken = (jnp.take(x, flat, axis, mode="clip") for x in self.parts)
        rows = form._opened(*taken, axis=1 - axis)
        rows = rows.T if form.by_column else rows
        return rows.reshape(*indices.shape, form.row).astype(form.dtype)

    def product(self, x: jax.Array) -> jax.Array | None:
        """``x @ matrix.T`` for one vector on a CPU, without a float copy of the matrix, which would
        take ten times as long.

        On other platforms XLA opens numbers while it multiplies; the process's own one decides.
        """
        form = self.form
        if x.size != form.row or jax.default_backend() != "cpu":
            return None
        vector = x.reshape(-1).astype(jnp.float32)
        if not form.by_column:  # a fused convert, multiply and sum
            values, scale = self.parts
            out = (values.astype(jnp.float32) * vector).sum(1) * scale[:, 0].astype(jnp.float32)
        elif (step := math.gcd(form.block, UNROLLED * form.kind.per)) >= 8:
            out = self._summed(vector, step)
        else:
            return None
        return out.reshape(*x.shape[:-1], -1).astype(x.dtype)

    def _summed(self, vector: jax.Array, step: int) -> jax.Array:
        """Adds up columns, ``step`` numbers of each in a round."""
        kind, (values, scale, *zero) = self.form.kind, self.parts
        rounds = vector.size // step
        vectors = vector.reshape(rounds, step)
        stored = values.reshape(rounds, step // kind.per, -1)
        pick = lambda x, i: lax.dynamic_index_in_dim(x, i, 0, False).astype(jnp.float32)

        def body(i, total):
            block = i * step // self.form.block
            taken, factors = lax.dynamic_index_in_dim(stored, i, 0, False), pick(vectors, i)
            null = [pick(x, block) for x in zero]
            out = jnp.zeros_like(total)
            for j in range(step // kind.per):
                for k, number in enumerate(kind.numbers(taken[j])):
                    out += (number - null[0] if null else number) * factors[j * kind.per + k]
            return total + out * pick(scale, block)

        return lax.fori_loop(0, rounds, body, jnp.zeros(values.shape[1], jnp.float32))


def opened(packed: Iterable[Packed], state: Arrays) -> tuple[dict, dict]:
    """(the arrays by name, what else is in the state)."""
    packed = tuple(packed)
    held = {part for each in packed for part in each.parts}
    rest = {k: v for k, v in state.items() if k not in held}
    arrays = {}
    for each in packed:
        arrays[each.name] = array = each(state)
        if each.ndim == 2:
            shortcuts.note(array, Short(each, tuple(state[part] for part in each.parts)))
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
