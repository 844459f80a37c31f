"""Cutting a part out of an array, and writing one into it.

A start that is traced serves where it decides no shape: in ``Slice``, and for axes that vanish. One
beyond the end reads the last element and writes nothing.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax

from tojax.tensorflow.core.known import as_jax, is_known, known
from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.schema import Entries, Static, lowers


@lowers("Slice")
def slice_(input, begin: Entries, size: Static):
    """A size of -1 is all that is left."""
    size = sizes(size)
    if any(isinstance(n, int) and n < 0 for n in size):
        left = lambda i, n: input.shape[i] - _entry(begin, i) if n == -1 else n
        size = [left(i, n) for i, n in enumerate(size)]
    if all(is_known(begin[i]) for i in range(input.ndim)):
        begin = sizes(begin)
        return lax.slice(input, begin, [b + n for b, n in zip(begin, size)])
    begin = [as_jax(begin[i]) for i in range(input.ndim)]
    return lax.dynamic_slice(input, begin, size, allow_negative_indices=False)


def index_of(begin, end, strides, masks) -> tuple:
    """The index that the inputs of a StridedSlice stand for, as Python writes it."""
    begin_mask, end_mask, ellipsis, new_axis, shrink = masks
    index: list[Any] = []
    for i in range(len(begin)):
        bit = 1 << i
        if ellipsis & bit:
            index.append(Ellipsis)
        elif new_axis & bit:
            index.append(None)
        elif shrink & bit:
            index.append(_entry(begin, i) if is_known(begin[i]) else begin[i])
        else:
            first = None if begin_mask & bit else _entry(begin, i)
            last = None if end_mask & bit else _entry(end, i)
            index.append(slice(first, last, _entry(strides, i)))
    return tuple(index)


def _entry(values, i: int) -> Any:
    return known(values[i], "where a slice begins and ends").item()


@lowers("StridedSlice")
def strided_slice(input, begin: Entries, end: Entries, strides: Entries, *masks):
    return input[index_of(begin, end, strides, masks)]


@lowers("StridedSliceGrad")
def strided_slice_grad(shape: Static, begin: Entries, end: Entries, strides: Entries, dy, *masks):
    cut = lambda x: x[index_of(begin, end, strides, masks)]
    return jax.linear_transpose(cut, jax.ShapeDtypeStruct(sizes(shape), dy.dtype))(dy)[0]


@lowers("TensorStridedSliceUpdate")
def strided_slice_update(input, begin: Entries, end: Entries, strides: Entries, value, *masks):
    return input.at[index_of(begin, end, strides, masks)].set(value)
