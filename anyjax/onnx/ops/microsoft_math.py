"""Mathematics and shapes of onnxruntime, which ONNX has otherwise or later."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.onnx.core.schema import Static, lowers, update
from anyjax.onnx.ops import index, shape
from anyjax.stablehlo.core.static_values import sizes


def complex_of(x):
    """Returns the complex numbers whose parts lie in the last axis."""
    return x[..., 0] + 1j * x[..., 1]


def parts_of(x):
    return jnp.stack([x.real, x.imag], -1)


@lowers("com.microsoft::ComplexMul")
def complex_mul(A, B):
    return parts_of(complex_of(A) * complex_of(B)).astype(A.dtype)


@lowers("com.microsoft::ComplexMulConj")
def complex_mul_conj(A, B):
    return parts_of(complex_of(A) * complex_of(B).conj()).astype(A.dtype)


def axes_of(x, signal_ndim):
    return tuple(range(x.ndim - signal_ndim, x.ndim))


@lowers("com.microsoft::Rfft")
def rfft(X, normalized, onesided, signal_ndim):
    half_of_it(onesided)
    out = jnp.fft.rfftn(X, axes=axes_of(X, signal_ndim), norm="ortho" if normalized else None)
    return parts_of(out).astype(X.dtype)


@lowers("com.microsoft::Irfft")
def irfft(X, normalized, onesided, signal_ndim):
    half_of_it(onesided)
    x = complex_of(X)
    out = jnp.fft.irfftn(x, axes=axes_of(x, signal_ndim), norm="ortho" if normalized else None)
    return out.astype(X.dtype)


def half_of_it(onesided):
    if not onesided:
        raise Unsupported(
            "Rfft or Irfft with onesided=0",
            why="onnxruntime has only the one-sided transforms",
            do="use the operator DFT of ONNX",
        )


@lowers("com.microsoft::CDist")
def cdist(A, B, metric):
    """The distances of all rows; where rows are equal, their gradient is zero."""
    squared = ((A[:, None] - B) ** 2).sum(-1)
    if metric == "sqeuclidean":
        return squared
    distinct = squared > 0
    return jnp.where(distinct, jnp.sqrt(jnp.where(distinct, squared, 1)), 0)


@lowers("com.microsoft::IsAllFinite")
def is_all_finite(input, isinf_only, isnan_only):
    bad = jnp.isinf if isinf_only else jnp.isnan if isnan_only else lambda x: ~jnp.isfinite(x)
    return jnp.stack([~bad(x).any() for x in input]).all()


@lowers("com.microsoft::Pad")
def pad(data, pads: Static, value, mode):
    return shape.pad(data, pads.reshape(-1), value, None, mode)


@lowers("com.microsoft::ExpandDims")
def expand_dims(X, axis: Static):
    return jnp.expand_dims(X, int(axis.reshape(())))


@lowers("com.microsoft::Trilu")
def trilu(X, k: Static, upper):
    return shape.trilu(X, k, upper)


@lowers("com.microsoft::Range")
def range_(start: Static, limit: Static, delta: Static):
    return shape.range_(start, limit, np.ones_like(start) if delta is None else delta, None)


@lowers("com.microsoft::Unique")
def unique(x: Static):
    """In the order of their first places, with the place of each element among them."""
    values, _, inverse, counts = shape.unique(x, None, 0)
    return values, inverse, counts


update(
    {
        "com.microsoft::Inverse": jnp.linalg.inv,
        "com.microsoft::GatherND": lambda data, indices: index.gather_nd(data, indices, 0),
    }
)


@lowers("com.microsoft::CropAndResize")
def crop_and_resize(X, rois, batch_indices, crop_size: Static, extrapolation_value, mode):
    """A region's corners are fractions of the image: top, left, bottom, right."""
    shape_of = X.shape[2:]
    corners = rois.reshape(-1, 2, 2).transpose(2, 0, 1)  # [axis, region, end]
    at = [along(*x) for x in zip(corners, shape_of, sizes(crop_size))]
    outside = [(x < 0) | (x > n - 1) for x, n in zip(at, shape_of)]
    images = X[batch_indices]
    if mode == "nearest":
        rows, columns = (jnp.floor(x + 0.5).astype(np.int32) for x in at)
        out = picked(images, rows, columns)
    else:
        (row, y), (column, x) = ((jnp.floor(v), v - jnp.floor(v)) for v in at)
        row, column = row.astype(np.int32), column.astype(np.int32)
        y, x = y[:, None, :, None], x[:, None, None]
        upper = picked(images, row, column) * (1 - x) + picked(images, row, column + 1) * x
        lower = picked(images, row + 1, column) * (1 - x) + picked(images, row + 1, column + 1) * x
        out = upper * (1 - y) + lower * y
    beyond = outside[0][:, None, :, None] | outside[1][:, None, None]
    return jnp.where(beyond, np.asarray(extrapolation_value, X.dtype), out)


def along(ends, size, count):
    """Returns the places of the lines of a crop along one axis, ``[regions, count]``."""
    low, high = ends[:, :1] * (size - 1), ends[:, 1:] * (size - 1)
    if count == 1:
        return (low + high) / 2
    return low + np.arange(count, dtype=np.float32) * (high - low) / (count - 1)


def picked(images, rows, columns):
    """Returns pixels at rows and columns of each image; those beyond the ends are the ends'."""
    rows, columns = rows.clip(0, images.shape[2] - 1), columns.clip(0, images.shape[3] - 1)
    pick = lambda image, rows, columns: image[:, rows[:, None], columns]
    return jax.vmap(pick)(images, rows, columns)
