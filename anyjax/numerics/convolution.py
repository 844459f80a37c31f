"""Convolutions that XLA's compilers are slow at: on CPUs depthwise ones, and those whose windows do
not overlap, single places or patches; on TPUs those in groups with many taps.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.numerics import grouped_convolution
from anyjax.numerics.replicated import mesh_of, undivided
from anyjax.private_names import Inconclusive

MOST = 128  # taps: each one is an instruction of the program
FEW = 512  # places: a product for each row of a batch is slower than one for all, and a transpose


def conv_general_dilated(
    lhs, rhs, window_strides, padding, lhs_dilation=None, rhs_dilation=None,
    dimension_numbers=None, feature_group_count=1, batch_group_count=1, precision=None,
    preferred_element_type=None,
) -> jax.Array:  # fmt: skip
    """``lax.conv_general_dilated``; on CPUs a depthwise one is a sum of shifted inputs, and one
    whose windows are single places, or patches side by side, a matrix product; on TPUs one in
    groups with many taps takes some of them in turn.

    Timings of both: benchmarks/convolutions.py.

    Example:
      >>> import numpy as np
      >>> x, w = np.ones((1, 4, 8), np.float32), np.ones((4, 1, 3), np.float32)
      >>> conv_general_dilated(x, w, (1,), [(1, 1)], feature_group_count=4)[0, 0].tolist()
      [2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0]
    """
    names = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    if {*map(type, lhs.shape)} != {int} and not isinstance(padding, str):
        lhs, padding = _covered(
            lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, names
        )
    sizes = window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers
    options = feature_group_count, batch_group_count, precision, preferred_element_type
    convolve = lambda lhs, rhs: lax.conv_general_dilated(lhs, rhs, *sizes, *options)
    out, _, *window = (rhs.shape[i] for i in names.rhs_spec)
    dilation = list(rhs_dilation or [1] * len(window))
    depthwise = 1 < feature_group_count == lhs.shape[names.lhs_spec[1]] == out
    kind = preferred_element_type or lhs.dtype
    is_plain = set(lhs_dilation or [1]) == {1} and names.lhs_spec == names.out_spec
    is_plain &= lhs.dtype == rhs.dtype == kind
    groups = feature_group_count, batch_group_count
    strides, is_single = tuple(window_strides), all(size == 1 for size in window)
    if is_plain and groups == (1, 1) and _is_product(lhs, padding, is_single):
        if is_single:
            return _pointwise(lhs, rhs, names, strides, precision)
        if tuple(window) == strides and set(dilation) == {1} and {*map(type, lhs.shape)} == {int}:
            lhs, rhs, names = _patches(lhs, rhs, names)
            return _pointwise(lhs, rhs, names, (1,) * len(window), precision)
    mesh = mesh_of(lhs, rhs) if groups != (1, 1) else None
    is_sum = depthwise and is_plain and math.prod(window) <= MOST
    has_many = is_plain and not depthwise and len(window) == 1 and {*strides, *dilation} == {1}
    has_many &= groups[0] > 1 == groups[1] and window[0] >= grouped_convolution.MANY
    has_many &= isinstance(lhs.shape[names.lhs_spec[-1]], int) and jnp.issubdtype(kind, jnp.inexact)
    if not (mesh or is_sum or has_many):
        return convolve(lhs, rhs)
    holes = tuple(lhs_dilation or [1] * len(window))
    if isinstance(padding, str):
        padding = _pads(lhs, rhs, window_strides, padding, holes, dilation, names)
    if has_many and not (mesh or is_sum):
        terms = padding, names, feature_group_count, precision, kind
        in_turn = lambda lhs, rhs: grouped_convolution.by_taps(lhs, rhs, *terms)
        return lax.platform_dependent(lhs, rhs, tpu=in_turn, default=convolve)
    if is_sum:
        shifted = _as_sum(names, strides, padding, dilation)
        by_platform = functools.partial(lax.platform_dependent, cpu=shifted, default=convolve)
        return (shifted if mesh else by_platform)(lhs, rhs)
    if math.prod(window) > grouped_convolution.MOST:
        return _undivided(convolve, lhs, rhs, names, mesh)
    further = holes, dilation, names, *groups, precision, kind
    return grouped_convolution.by_products(lhs, rhs, strides, padding, *further)


def _covered(lhs, rhs, strides, padding, holes, dilation, names) -> tuple[jax.Array, Sequence]:
    """Returns (input, padding) that the windows cover to the last element, where strides leave open
    how much of a size that is not known they do: JAX's gradient of that pads by numbers alone.
    """
    padding, ones = [*padding], [1] * len(strides)
    for i, axis in enumerate(names.lhs_spec[2:]):
        size, step = lhs.shape[axis], strides[i]
        if isinstance(size, int) or step == 1 or (holes or ones)[i] != 1:
            continue
        reach = (rhs.shape[names.rhs_spec[2 + i]] - 1) * (dilation or ones)[i] + 1
        width = [(0, 0)] * lhs.ndim
        width[axis] = padding[i]
        lhs, padding[i] = jnp.pad(lhs, width), (0, 0)
        last = (lhs.shape[axis] - reach) // step * step  # where the last window begins
        with contextlib.suppress(Inconclusive):
            if last >= 0:
                lhs = lax.slice_in_dim(lhs, 0, last + reach, axis=axis)
    return lhs, padding


def _as_sum(names, strides, padding, dilation) -> Callable:
    """Returns `_shifted` with these sizes."""
    sizes = {"strides": strides, "padding": tuple(map(tuple, padding)), "apart": tuple(dilation)}
    return functools.partial(_shifted, names=names, **sizes)


def _pads(lhs, rhs, strides, padding: str, holes, dilation, names) -> list[tuple[int, int]]:
    window = (rhs.shape[i] for i in names.rhs_spec[2:])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, window)]
    sizes = [(lhs.shape[i] - 1) * n + 1 for i, n in zip(names.lhs_spec[2:], holes)]
    return lax.padtype_to_pads(sizes, reach, strides, padding)


def _undivided(convolve, lhs, rhs, names, mesh) -> jax.Array:
    """Returns a convolution that each device computes for all rows and channels."""
    lhs = undivided(lhs, names.lhs_spec[:2], mesh)
    rhs = undivided(rhs, names.rhs_spec[:2], mesh)
    return undivided(convolve(lhs, rhs), names.out_spec[:2], mesh)


def _is_product(lhs: jax.Array, padding: str | Sequence[Sequence[int]], is_single: bool) -> bool:
    """Returns whether windows that do not overlap are a product that the library computes.

    The process's platform decides: elsewhere it is the same product, which others compile well.
    """
    if isinstance(padding, str):
        unpadded = padding == "VALID" or is_single
    else:
        unpadded = not any(any(pair) for pair in padding)
    floats = lhs.dtype in (jnp.float32, jnp.float64)
    return unpadded and floats and jax.default_backend() == "cpu"


def _patches(lhs, rhs, names):
    """Returns a convolution of patches as one of single places: their places are channels.

    Of (input, kernel, dimension numbers).
    """
    (_, channel, *spatial), (out, _, *places) = names.lhs_spec, names.rhs_spec
    window = dict(zip(spatial, (rhs.shape[i] for i in places)))
    shape: list[int] = []
    order: list[int] = []
    offsets: list[int] = []
    for axis, size in enumerate(lhs.shape):
        order.append(len(shape))
        if axis in window:
            offsets.append(len(shape) + 1)
            shape += [size // window[axis], window[axis]]
        else:
            shape.append(size)
    ends = [size // window.get(i, 1) * window.get(i, 1) for i, size in enumerate(lhs.shape)]
    cut = lax.slice(lhs, [0] * lhs.ndim, ends).reshape(shape)
    order[channel + 1 : channel + 1] = offsets
    cut = cut.transpose(order)
    sizes = [size // window.get(i, 1) for i, size in enumerate(lhs.shape)]
    sizes[channel] *= math.prod(window.values())
    kernel = rhs.transpose(names.rhs_spec).reshape(rhs.shape[out], -1, *[1] * len(places))
    specs = (names.lhs_spec, tuple(range(rhs.ndim)), names.out_spec)
    return cut.reshape(sizes), kernel, lax.ConvDimensionNumbers(*specs)


def _pointwise(lhs, rhs, names, strides, precision) -> jax.Array:
    """Returns a product with the weights at each place, for any layout of the input."""
    (_, channel, *spatial), ends = names.lhs_spec, lhs.shape
    steps = [1] * lhs.ndim
    for axis, step in zip(spatial, strides):
        steps[axis] = step
    if any(step > 1 for step in steps):
        lhs = lax.slice(lhs, [0] * lhs.ndim, ends, steps)
    weights = lax.transpose(rhs, names.rhs_spec).reshape([rhs.shape[i] for i in names.rhs_spec[:2]])
    if names.lhs_spec[:2] != (0, 1) or {*map(type, lhs.shape[2:])} - {int}:
        out = lax.dot_general(lhs, weights, (((channel,), (1,)), ((), ())), precision=precision)
        return jnp.moveaxis(out, -1, channel)
    rows, count, *sizes = lhs.shape
    places = math.prod(sizes)
    lhs = lhs.reshape(rows, count, places)
    if places >= FEW:
        weights = jnp.broadcast_to(weights, (rows, *weights.shape))
        out = lax.dot_general(weights, lhs, (((2,), (1,)), ((0,), (0,))), precision=precision)
    else:
        out = lax.dot_general(weights, lhs, (((1,), (1,)), ((), ())), precision=precision)
        out = out.swapaxes(0, 1)
    return out.reshape(rows, out.shape[1], *sizes)


@functools.partial(jax.jit, static_argnames=("names", "strides", "padding", "apart"))
def _shifted(lhs, rhs, names, strides, padding, apart) -> jax.Array:
    """Returns the sum, over the places in the window, of the input there times the channels'
    weights.

    Half precision is summed in float32, as XLA's convolutions do.
    """
    (_, channel, *spatial), kind = names.lhs_spec, lhs.dtype
    wide = jnp.promote_types(kind, jnp.float32) if jnp.issubdtype(kind, jnp.inexact) else kind
    margins: list[tuple[Any, Any, int]] = [(0, 0, 0)] * lhs.ndim
    for axis, (low, high) in zip(spatial, padding):
        margins[axis] = (low, high, 0)
    lhs = lax.pad(lhs, jnp.zeros((), kind), margins)
    window = [rhs.shape[i] for i in names.rhs_spec[2:]]
    weights = lax.transpose(rhs, (*names.rhs_spec[2:], *names.rhs_spec[:2])).astype(wide)
    along = [1] * lhs.ndim
    along[channel] = lhs.shape[channel]
    weights = weights.reshape(math.prod(window), *along)
    total = jnp.zeros((), wide)
    for n, place in enumerate(itertools.product(*map(range, window))):
        start, stop, step = [0] * lhs.ndim, list(lhs.shape), [1] * lhs.ndim
        for i, axis in enumerate(spatial):
            start[axis], step[axis] = place[i] * apart[i], strides[i]
            stop[axis] -= (window[i] - 1 - place[i]) * apart[i]
        shifted = lax.slice(lhs, start, stop, step).astype(wide)
        total += shifted * lax.index_in_dim(weights, n, keepdims=False)
    return _unfused(total.astype(kind), spatial[0])


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _unfused(x, axis) -> jax.Array:
    """Returns ``x``, computed once: XLA would fuse the sum into each of its users, and into each
    element of a mean that one of them takes. A loop that copies two halves is never fused.
    """
    if not isinstance(x.shape[axis], int) or x.shape[axis] < 2:
        return x
    step = x.shape[axis] // 2
    size = x.shape[axis] - step

    def copy(i, out):
        half = lax.dynamic_slice_in_dim(x, i * step, size, axis)
        return lax.dynamic_update_slice_in_dim(out, half, i * step, axis)

    return lax.fori_loop(0, 2, copy, jnp.zeros_like(x))


@_unfused.defjvp
def _unfused_jvp(axis, primals, tangents):
    (x,), (tangent,) = primals, tangents
    return _unfused(x, axis), tangent


def transposed_kernel(weight: jax.Array, groups: int) -> jax.Array:
    """Returns the kernel [out, in / groups, *window] by which a convolution of the dilated input
    transposes that of ``weight`` [in, out / groups, *window].
    """
    weight = lax.rev(weight, range(2, weight.ndim))
    weight = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
    return weight.reshape(-1, *weight.shape[2:])
