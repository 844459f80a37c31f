"""Large constants as the expressions that make them: positions, masks, waves, relative places."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np

WAVES = ("sin", "cos")


def expression_for(array: np.ndarray) -> str | None:
    """Returns an expression that gives the array, to the rounding of its numbers; None if there is
    none.

    Example:
      >>> expression_for(np.tril(np.ones((20, 20), bool))[None])
      'jnp.tri(20, dtype=bool)[None]'
    """
    ones = next((i for i, n in enumerate(array.shape) if n != 1), array.ndim)
    inner = array.reshape(array.shape[ones:])
    expr = _best(inner)
    if expr is None or not ones:
        return expr
    operated = isinstance(ast.parse(expr, mode="eval").body, (ast.BinOp, ast.UnaryOp))
    return f"{f'({expr})' if operated else expr}[{', '.join(['None'] * ones)}]"


def _best(array: np.ndarray) -> str | None:
    """Returns the expression that is nearest, if it is near enough."""
    near: list[tuple[float, str]] = []
    for text, angle in candidates(array):
        off = difference(array, text)
        if off <= 4 * np.finfo(np.float32).eps * angle:
            near.append((off, text))
        if off == 0:
            break
    return min(near)[1] if near else None


def difference(array: np.ndarray, text: str) -> float:
    """Returns how far an expression is from an array."""
    values = np.asarray(eval(text, {"jnp": jnp, "math": math}))
    if values.shape != array.shape or values.dtype.kind != array.dtype.kind:
        return math.inf
    if values.dtype.kind not in "fc":
        return 0.0 if np.array_equal(values, array) else math.inf
    finite = np.isfinite(array)
    if not np.array_equal(values[~finite], array[~finite], equal_nan=True):
        return math.inf
    return float(np.abs(values[finite] - array[finite]).max(initial=0))


def candidates(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields expressions that may give the array, each with the largest number that it rounds."""
    if array.size < 2:
        return
    for find in (_steps, _triangle, _rates, _outer, _waves, _places, _grid, _columns):
        yield from find(array)


def _steps(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields sums of ranges over the dimensions of a flat array: counts, grids."""
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        return
    flat, runs = array.reshape(-1), []
    while flat.size > 1:
        step = flat[1] - flat[0]
        even = np.nonzero(np.diff(flat) != step)[0]
        count = int(even[0]) + 1 if even.size else flat.size
        if flat.size % count:
            return
        runs.append((count, step.item()))
        flat = flat[::count]
    if len(runs) > 4:
        return
    terms: list[str] = []
    for i, (count, step) in enumerate(runs):
        if step:
            text = f"jnp.arange({count})" + "[:" + ", None" * i + "]" * bool(i)
            text = text if i else f"jnp.arange({count})"
            terms.insert(0, text if step == 1 else f"{step!r} * {text}")
    if flat[0] or not terms:
        terms.append(repr(flat[0].item()))
    text = " + ".join(terms)
    counts = tuple(count for count, step in reversed(runs))
    if any(step == 0 for _, step in runs):
        text = f"jnp.broadcast_to({text}, {counts})"
    if array.dtype.kind == "f" and all(step in (0, 1) for _, step in runs) and not flat[0]:
        text = f"({text}).astype(jnp.float32)"
    yield (text if counts == array.shape else f"({text}).reshape{array.shape}"), 0.0


def _triangle(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields triangular masks and the identity."""
    if array.ndim != 2:
        return
    rows, columns = array.shape
    shape = f"{rows}" if rows == columns else f"{rows}, {columns}"
    kind = {"b": ", dtype=bool", "i": ", dtype=int", "u": ", dtype=jnp.uint8"}.get(array.dtype.kind)
    if array.dtype == bool or set(np.unique(array)) <= {0, 1}:
        yield f"jnp.eye({shape}{kind or ''})", 0.0
        for k in (0, -1, 1):
            tri = f"jnp.tri({shape}{f', k={k}' * bool(k)}{kind or ''})"
            yield tri, 0.0
            yield f"~{tri}" if kind == ", dtype=bool" else f"1 - {tri}", 0.0
    elif array.dtype.kind == "f" and (low := array.min()) < 0 and array.max() == 0:
        value = "-jnp.inf" if np.isinf(low) else repr(low.item())
        yield f"jnp.triu(jnp.full(({rows}, {columns}), {value}), 1)", 0.0


def _rates(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields the falling frequencies of rotary and sinusoidal positions."""
    if array.ndim == 1 and array.size > 3 and array.dtype.kind == "f" and abs(array[0] - 1) < 1e-6:
        for text in _geometric(array.size, float(array[1])):
            yield text, 1.0


def _geometric(count: int, second: float) -> Iterator[str]:
    """Yields powers 1, r, r**2, as people write them, where r is a root of a round number."""
    if not 0 < second < 1:
        return
    for steps in (count, count - 1):
        if -steps * math.log(second) > 20:  # of no base that anyone takes
            continue
        exact = second**-steps
        base = float(f"{exact:.3g}")
        if abs(exact / base - 1) < 1e-3:
            shown = f"{base:.1f}" if base == int(base) else repr(base)
            if steps == count:
                yield f"1 / {shown} ** (jnp.arange(0, {2 * count}, 2) / {2 * count})"
            yield f"jnp.exp(jnp.arange({count}) * (-math.log({shown}) / {steps}))"


def _outer(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields positions times frequencies."""
    if array.ndim != 2 or array.dtype.kind != "f" or len(array) < 3 or array[0].any():
        return
    if np.isfinite(array).all() and (row := _best(array[1])):
        yield f"jnp.outer(jnp.arange({len(array)}), {row})", float(np.abs(array).max())


def _waves(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields sines and cosines of positions times frequencies, side by side or interleaved."""
    if array.ndim != 2 or len(array) < 3 or array.dtype.kind not in "fc":
        return
    empty = [i for i, row in enumerate(array) if not row.any()]
    if len(empty) > 1 or np.abs(array).max() > 1.000001:
        return
    first = 2 if empty == [1] else 1
    end = f".at[{empty[0]}].set(0)" if empty and array.dtype.kind == "f" else ""
    length, width = array.shape
    if array.dtype.kind == "c":
        for text in _geometric(width, float(np.angle(array[1, 1]))):
            yield f"jnp.exp(1j * jnp.outer(jnp.arange({length}), {text}))", float(length)
        return
    for name in WAVES:
        if width > 1:
            for text in _heard(width, name, array[first, 1], first):
                yield f"jnp.{name}(jnp.outer(jnp.arange({length}), {text})){end}", float(length)
    half = width // 2
    if width % 2 or half < 2:
        return
    for (inner, second), beside in product(product(WAVES, repeat=2), (True, False)):
        both = f"jnp.{inner}, jnp.{second}"
        for text in _heard(half, inner, array[first, 1 if beside else 2], first):
            wave = f"[f(jnp.outer(jnp.arange({length}), {text})) for f in ({both})]"
            if beside:
                yield f"jnp.concatenate({wave}, axis=1){end}", float(length)
            else:
                yield f"jnp.stack({wave}, axis=-1).reshape({length}, {width}){end}", float(length)


def _heard(count: int, name: str, value: Any, position: int) -> Iterator[str]:
    """Yields frequencies whose second entry has this sine or cosine at a position."""
    value = max(-1, min(1, value))
    angles = {math.asin(value), math.pi - math.asin(value)} if name == "sin" else {math.acos(value)}
    for angle in angles:
        yield from _geometric(count, angle / position)


def _places(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields distances, and tables of places in two squares that add up from rows and columns."""
    if array.ndim != 2 or array.dtype.kind not in "iu":
        return
    rows, columns = array.shape
    step, stride = array[0, min(1, columns - 1)], int(array[min(1, rows - 1)].argmin())
    if step:
        scale = "" if stride == 1 else f"{stride} * "
        distances = f"jnp.abs({scale}jnp.arange({rows})[:, None] - jnp.arange({columns}))"
        yield distances if step == 1 else f"{step} * {distances}", 0.0
    height, width = math.isqrt(rows), math.isqrt(columns)
    if height**2 != rows or width**2 != columns or min(height, width) < 2:
        return
    square: Any = array.reshape(height, height, width, width)
    down, along = square[:, 0, :, 0], square[0, :, 0, :] - square[0, 0, 0, 0]
    if not np.array_equal(square, down[:, None, :, None] + along[:, None, :]):
        return
    axes = [_best(down), _best(along)]
    if all(axes):
        text = f"({axes[0]})[:, None, :, None] + ({axes[1]})[:, None, :]"
        yield f"({text}).reshape({rows}, {columns})", 0.0


def _grid(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields coordinates: row and column, one number each."""
    if array.ndim != 3 or array.shape[-1] != 2 or max(array.shape) > 128:
        return
    down, along = array[:, 0, 0], array[0, :, 1]
    lines = [_best(x) or f"jnp.array({x.tolist()})" for x in (down, along)]
    if (array[..., 0] == down[:, None]).all() and (array[..., 1] == along).all():
        largest = float(np.abs(array).max()) if array.dtype.kind == "f" else 0.0
        yield f"jnp.stack(jnp.meshgrid({', '.join(lines)}, indexing='ij'), axis=-1)", largest


def _columns(array: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yields a few numbers side by side, as the two coordinates of each place."""
    if array.ndim < 2 or array.shape[-1] > 4 or array.shape[-1] == array.size:
        return
    columns = [_best(np.ascontiguousarray(x)) for x in np.moveaxis(array, -1, 0)]
    if all(columns):
        largest = float(np.abs(array).max()) if array.dtype.kind == "f" else 0.0
        yield f"jnp.stack([{', '.join(map(str, columns))}], axis=-1)", largest
