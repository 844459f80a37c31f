"""Diagonals and bands of matrices.

Diagonal d holds the elements of column row + d. Several diagonals, from the highest to the lowest,
lie in rows as long as the longest one; ``align`` says at which end of its row a shorter one lies.
TensorFlow has no gradient for the padding.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.core.static_values import fixed, is_known, sizes
from anyjax.tensorflow.core.schema import Static, lowers


def _lowest_highest(k) -> tuple[int, int]:
    low, *high = sizes(np.ravel(k))
    return low, (high or [low])[0]


def _rows_columns(rows, columns) -> tuple:
    iota = lambda axis: lax.broadcasted_iota("int32", (rows, columns), axis)
    return iota(0), iota(1)


def _offset(d, rows, columns, longest, align):
    above, below = (side == "RIGHT" for side in align.split("_"))
    short = longest - (jnp.minimum(rows, columns - d) - jnp.maximum(0, -d))
    right = jnp.where(d > 0, above, jnp.where(d < 0, below, above and below))
    return jnp.where(right, short, 0)


def embed(diagonal, matrix, k, align):
    """Returns ``matrix`` with its diagonals ``k`` replaced."""
    rows, columns = matrix.shape[-2:]
    low, high = k
    row, column = _rows_columns(rows, columns)
    d = column - row
    if low == high:  # no gather: the diagonal lies along the rows or the columns
        axis, length = (-1, rows) if low >= 0 else (-2, columns)
        if (missing := length - diagonal.shape[-1]) != 0:
            widths = [(0, 0, 0)] * (diagonal.ndim - 1) + [(0, missing, 0)]
            diagonal = lax.pad(diagonal, np.zeros((), diagonal.dtype), widths)
        return jnp.where(d == low, jnp.expand_dims(diagonal, axis), matrix)
    which = jnp.clip(high - d, 0, high - low)
    along = jnp.minimum(row, column) + _offset(d, rows, columns, diagonal.shape[-1], align)
    along = jnp.clip(along, 0, diagonal.shape[-1] - 1)
    elements = diagonal.at[..., which, along].get(mode="promise_in_bounds")
    return jnp.where((low <= d) & (d <= high), elements, matrix)


@lowers("MatrixDiagV3")
def matrix_diag_v3(diagonal, k: Static, rows: Static, columns: Static, padding, align, /):
    """A size of -1 is the smallest that holds the diagonals; if both are -1, they are equal."""
    low, high = _lowest_highest(k)
    rows, columns, longest = int(rows), int(columns), diagonal.shape[-1]
    least = longest - min(high, 0), longest + max(low, 0)
    if rows == columns == -1:
        rows = columns = max(least)
    rows, columns = (least[i] if n == -1 else n for i, n in enumerate((rows, columns)))
    batch = diagonal.shape[: -1 if low == high else -2]
    return embed(diagonal, jnp.full((*batch, rows, columns), fixed(padding)), (low, high), align)


@lowers("MatrixDiagV2")
def matrix_diag_v2(diagonal, k: Static, rows: Static, columns: Static, padding, /):
    return matrix_diag_v3(diagonal, k, rows, columns, padding, "LEFT_LEFT")


@lowers("MatrixDiag", "BatchMatrixDiag")
def matrix_diag(diagonal):
    size = diagonal.shape[-1]
    row, column = _rows_columns(size, size)
    return jnp.where(row == column, diagonal[..., None], np.zeros((), diagonal.dtype))


@lowers("MatrixSetDiagV3")
def matrix_set_diag_v3(input, diagonal, k: Static, align):
    return embed(diagonal, input, _lowest_highest(k), align)


@lowers("MatrixSetDiagV2")
def matrix_set_diag_v2(input, diagonal, k: Static):
    return embed(diagonal, input, _lowest_highest(k), "LEFT_LEFT")


@lowers("MatrixSetDiag", "BatchMatrixSetDiag")
def matrix_set_diag(input, diagonal):
    return embed(diagonal, input, (0, 0), "LEFT_LEFT")


@lowers("MatrixDiagPartV3")
def matrix_diag_part_v3(input, k: Static, padding_value, align):
    low, high = _lowest_highest(k)
    if low == high:
        return jnp.diagonal(input, low, -2, -1)
    rows, columns = input.shape[-2:]
    longest = min(rows + min(high, 0), columns - max(low, 0))
    below, along = _rows_columns(high - low + 1, longest)
    d = high - below
    along = along - _offset(d, rows, columns, longest, align)
    row, column = along + jnp.maximum(0, -d), along + jnp.maximum(0, d)
    inside = (along >= 0) & (row < rows) & (column < columns)
    row, column = (jnp.where(inside, x, 0) for x in (row, column))
    elements = input.at[..., row, column].get(mode="promise_in_bounds")
    return jnp.where(inside, elements, fixed(padding_value))


@lowers("MatrixDiagPartV2")
def matrix_diag_part_v2(input, k: Static, padding_value):
    return matrix_diag_part_v3(input, k, padding_value, "LEFT_LEFT")


@lowers("MatrixDiagPart", "BatchMatrixDiagPart")
def matrix_diag_part(input):
    return jnp.diagonal(input, 0, -2, -1)


@lowers("Diag")
def diag(diagonal):
    return jnp.reshape(matrix_diag(jnp.ravel(diagonal)), diagonal.shape * 2)


@lowers("DiagPart")
def diag_part(input):
    shape = input.shape[: input.ndim // 2]
    return jnp.reshape(jnp.diagonal(jnp.reshape(input, [math.prod(shape)] * 2)), shape)


@lowers("MatrixBandPart", "BatchMatrixBandPart")
def band_part(input, num_lower, num_upper):
    """A negative number keeps the whole triangle on its side."""
    row, column = _rows_columns(*input.shape[-2:])
    zero = np.zeros((), input.dtype)
    for count, distance in ((num_lower, row - column), (num_upper, column - row)):
        if not is_known(count):
            input = jnp.where((count < 0) | (distance <= count), input, zero)
        elif count >= 0:
            input = jnp.where(distance <= count, input, zero)
    return input
