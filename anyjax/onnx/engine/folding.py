"""Constant folding: what is computed from known values stays known, because shapes come from it.

numpy computes the operators of shapes, also of symbolic sizes, and the lowerings, in 64 bits,
everything else that is small.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import jax
import numpy as np

from anyjax import trees
from anyjax.onnx.core.nodes import Node
from anyjax.stablehlo.core.static_values import is_known
from anyjax.stablehlo.engine.folding import either
from anyjax.typing import PyTree

SMALL = 64  # elements that the lowerings compute
LARGE = 1 << 16  # elements; larger arrays are computed by the program, not stored in it


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    b = np.where(b == 0, 1, b)  # undefined in ONNX
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


def _slice(data, starts, ends, axes, steps):
    index = [slice(None)] * data.ndim
    axes = range(len(starts)) if axes is None else axes
    for i, axis in enumerate(axes):
        step = 1 if steps is None else int(steps[i])
        end = int(ends[i])
        past = step < 0 and end < -data.shape[axis]
        index[axis] = slice(int(starts[i]), None if past else end, step)
    return data[tuple(index)]


def _squeeze(data, axes):
    return np.squeeze(data, None if axes is None else tuple(map(int, axes.ravel())))


def _reshape(data, shape, allowzero):
    sizes = [data.shape[i] if n == 0 and not allowzero else int(n) for i, n in enumerate(shape)]
    return data.reshape(sizes)


def _cast(input, round_mode, saturate, to):
    if input.dtype == object:
        return input if to.kind in "iu" else None
    return input.astype(to) if np.dtype(to).kind in "iufb" else None


def _reduce(function: Callable) -> Callable:
    def rule(data, axes, keepdims, noop_with_empty_axes):
        if axes is None or not len(axes):
            axes = () if noop_with_empty_axes else range(data.ndim)
        return function(data, axis=tuple(map(int, axes)), keepdims=bool(keepdims), dtype=data.dtype)

    return rule


def _arange(start, limit, delta, stash_type):
    symbolic = object in (start.dtype, limit.dtype, delta.dtype)
    first, last, step = (x.item() for x in (start, limit, delta))
    return None if symbolic else np.arange(first, last, step).astype(start.dtype)


NUMPY: dict[str, Callable] = {
    "Identity": lambda input: input,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": either(_divide, operator.floordiv),
    "Mod": lambda A, B, fmod: None if fmod else either(np.mod, operator.mod)(A, B),
    "Max": lambda data_0: _fold_all(np.maximum, jax.core.max_dim, data_0),
    "Min": lambda data_0: _fold_all(np.minimum, jax.core.min_dim, data_0),
    "Neg": np.negative,
    "Abs": lambda X: None if X.dtype == object else np.abs(X),
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Equal": lambda A, B: np.asarray(np.equal(A, B), bool),
    "Less": lambda A, B: np.less(A, B),
    "LessOrEqual": lambda A, B: np.less_equal(A, B),
    "Greater": lambda A, B: np.greater(A, B),
    "GreaterOrEqual": lambda A, B: np.greater_equal(A, B),
    "Where": lambda condition, X, Y: np.where(condition, X, Y),
    "Cast": _cast,
    "Concat": lambda inputs, axis: np.concatenate(inputs, axis),
    "Gather": lambda data, indices, axis: np.take(data, indices.astype(np.int64), axis),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda data, axes: np.expand_dims(data, tuple(map(int, axes.ravel()))),
    "Reshape": _reshape,
    "Transpose": lambda data, perm: np.transpose(data, perm),
    "Expand": lambda input, shape: np.broadcast_to(
        input, np.broadcast_shapes(input.shape, tuple(map(int, shape)))
    ),
    "Tile": lambda input, repeats: np.tile(input, [int(n) for n in repeats]),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Range": _arange,
}


def _fold_all(numeric: Callable, symbolic: Callable, arrays: Sequence[np.ndarray]) -> np.ndarray:
    first, *further = arrays
    for array in further:
        first = either(numeric, symbolic)(first, array)
    return first


def fold(node: Node, arguments: Sequence[PyTree], compute: Callable) -> tuple | None:
    """Computes a node whose arguments are known, by numpy or by ``compute``; returns None if the
    program has to.
    """
    arrays = [x for x in jax.tree.leaves(list(arguments)) if trees.is_array(x) or is_known(x)]
    if not arrays or not all(map(is_known, arrays)):
        return None
    size = sum(x.size for x in arrays)
    rule = None if node.op.domain else NUMPY.get(node.op.name)
    if rule is not None and size <= LARGE:
        with np.errstate(all="ignore"):
            value = rule(*arguments)
        if value is not None and np.size(value) <= LARGE:
            return (np.asarray(value),)
    if size > SMALL or any(x.dtype == object for x in arrays):
        return None
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        out = compute()
        outputs = out if isinstance(out, tuple) else (out,)
        return tuple(x if callable(x) else jax.tree.map(np.asarray, x) for x in outputs)
