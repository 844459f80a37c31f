"""Pooling: ``reduce_window`` where windows are regular, gathered windows where they are not."""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics import sampling
from anyjax.numerics.pooling import inside, lowest, max_places, place, window_counts
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import wide
from anyjax.torch.ops.conv import spread


def windows(x, rank, kernel, stride, padding, dilation, ceil_mode):
    """Arguments of ``reduce_window`` over the last ``rank`` dimensions; ceil_mode pads more."""
    kernel, padding, dilation = (spread(v, rank) for v in (kernel, padding, dilation))
    stride = spread(stride, rank) if stride else kernel
    pads = []
    for n, k, s, p, d in zip(x.shape[-rank:], kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        count = -(-(n + 2 * p - reach) // s) + 1 if ceil_mode else (n + 2 * p - reach) // s + 1
        count -= (
            ceil_mode and (count - 1) * s >= n + p
        )  # no window starts in the padding at the end
        pads.append((p, max(p, (count - 1) * s + reach - n - p)))
    lead = [1] * (x.ndim - rank)
    return {
        "window_dimensions": (*lead, *kernel),
        "window_strides": (*lead, *stride),
        "padding": [(0, 0)] * len(lead) + pads,
        "window_dilation": (*lead, *dilation),
    }


def flat(x, rank):
    """The last ``rank`` dimensions as one."""
    return x.reshape(*x.shape[:-rank], math.prod(x.shape[-rank:]))


def max_pool_indices(rank):
    def pool(self, kernel_size, stride, padding, dilation, ceil_mode):
        window = windows(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
        places = max_places(self, rank, window, nans=True)
        values = jnp.take_along_axis(flat(self, rank), flat(places, rank), -1, mode="clip")
        return values.reshape(places.shape), places

    return pool


def max_pool(rank):
    """JAX has no gradient for windows with holes; those go by index."""

    def pool(self, kernel_size, stride, padding, dilation, ceil_mode):
        if max(dilation) > 1:
            return max_pool_indices(rank)(self, kernel_size, stride, padding, dilation, ceil_mode)[
                0
            ]
        window = windows(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
        return lax.reduce_window(self, lowest(self.dtype), lax.max, **inside(self, window))

    return pool


def avg_pool(rank):
    def pool(self, kernel, stride, padding, ceil_mode, count_include_pad, divisor=None, /):
        window = windows(self, rank, kernel, stride, padding, [1], ceil_mode)
        zero = np.array(0, wide(self).dtype)
        total = lax.reduce_window(wide(self), zero, lax.add, **inside(self, window))
        if divisor is None:
            sizes, strides, pads, _ = window.values()
            divisor = window_counts(self, total, sizes, strides, pads, count_include_pad)
        if not jnp.issubdtype(total.dtype, jnp.inexact):
            return lax.div(total, jnp.broadcast_to(jnp.asarray(divisor, total.dtype), total.shape))
        return (total / divisor).astype(self.dtype)

    return pool


def adaptive_places(size, out):
    """The elements [out, longest] of ``out`` windows over ``size``, and which of them count."""
    start, end = np.arange(out) * size // out, -(-np.arange(1, out + 1) * size // out)
    places = start[:, None] + np.arange((end - start).max(initial=1))
    return np.minimum(places, max(size - 1, 0)), places < end[:, None]


def adaptive_windows(size, out):
    """Marks the elements [out, size] that count in ``out`` windows, for symbolic sizes."""
    n, count = jnp.asarray(size), jnp.asarray(out)
    at = jnp.arange(out)
    return sampling.windows(size, at * n // count, -(-(at + 1) * n // count))


def adaptive_avg_pool(self, output_size):
    """One dimension after another; windows of one length are a reshape."""
    out = wide(self)
    for axis, count in zip(range(-len(output_size), 0), output_size, strict=True):
        axis += out.ndim
        if isinstance(count, int) and count and out.shape[axis] % count == 0:
            split = (*out.shape[:axis], count, out.shape[axis] // count, *out.shape[axis + 1 :])
            out = out.reshape(split).mean(axis + 1)
            continue
        if not isinstance(out.shape[axis], int):
            inside = adaptive_windows(out.shape[axis], count).astype(out.dtype)
            out = sampling.weighted(out, inside / inside.sum(1, keepdims=True), axis)
            continue
        places, valid = adaptive_places(out.shape[axis], count)
        valid = np.expand_dims(valid, tuple(range(2, out.ndim - axis + 1)))
        out = jnp.where(valid, jnp.take(out, places, axis, mode="clip"), 0).sum(
            axis + 1
        ) / valid.sum(1)
    return out.astype(self.dtype)


def adaptive_max_pool(self, output_size):
    """(maxima, their places): the last dimension first, as torch scans the rows."""
    rank = len(output_size)
    out = self
    places = lax.iota(jnp.int32, math.prod(self.shape[-rank:])).reshape(self.shape[-rank:])
    places = jnp.broadcast_to(places, self.shape)
    for axis, count in reversed(list(zip(range(-rank, 0), output_size, strict=True))):
        axis += out.ndim
        if isinstance(out.shape[axis], int):
            window, valid = adaptive_places(out.shape[axis], count)
        else:
            valid = adaptive_windows(out.shape[axis], count)
            window = jnp.broadcast_to(jnp.arange(out.shape[axis]), valid.shape)
        valid = jnp.expand_dims(valid, tuple(range(2, out.ndim - axis + 1)))
        candidates = jnp.where(valid, jnp.take(out, window, axis, mode="clip"), lowest(out.dtype))
        best = jnp.argmax(candidates, axis + 1, keepdims=True)
        out = jnp.take_along_axis(candidates, best, axis + 1, mode="clip").squeeze(axis + 1)
        places = jnp.take_along_axis(
            jnp.take(places, window, axis, mode="clip"), best, axis + 1, mode="clip"
        ).squeeze(axis + 1)
    return out, places


for _rank in (1, 2, 3):
    table.update(
        {
            getattr(aten, f"max_pool{_rank}d"): max_pool(_rank),
            getattr(aten, f"max_pool{_rank}d_with_indices"): max_pool_indices(_rank),
            getattr(aten, f"avg_pool{_rank}d"): avg_pool(_rank),
            getattr(aten, f"adaptive_avg_pool{_rank}d"): adaptive_avg_pool,
            getattr(aten, f"adaptive_max_pool{_rank}d"): adaptive_max_pool,
        }
    )
table.update(
    {aten._adaptive_avg_pool2d: adaptive_avg_pool, aten._adaptive_avg_pool3d: adaptive_avg_pool}
)


def fractional_places(x, kernel_size, output_size, samples):
    """Places [N, C, windows, elements] as flat indices; samples say where windows start."""
    rank, index = len(output_size), 0
    for i, (n, k, count) in enumerate(zip(x.shape[2:], kernel_size, output_size, strict=True)):
        sample = samples[..., i, None]
        step = x.dtype.type(n - k) / x.dtype.type(max(count - 1, 1))
        start = jnp.trunc((np.arange(count) + sample) * step) - jnp.trunc(sample * step)
        start = jnp.where(np.arange(count) == count - 1, n - k, start.astype(jnp.int32))
        place = start[..., None] + np.arange(k)
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = count, k
        index = index * n + place.reshape(*place.shape[:2], *shape)
    return index.reshape(*x.shape[:2], math.prod(output_size), math.prod(kernel_size))


@lowers(aten.fractional_max_pool2d, aten.fractional_max_pool3d)
def fractional_max_pool(self, kernel_size, output_size, random_samples):
    """(maxima, places). Samples for 2d name width before height; those of a larger batch pass."""
    rank = len(output_size)
    samples = random_samples if rank == 3 else random_samples[..., ::-1]
    single = self.ndim == rank + 1
    x = self[None] if single else self
    index = fractional_places(x, kernel_size, output_size, samples[: len(x)])
    candidates = jnp.take_along_axis(flat(x, rank), flat(index, 2), -1, mode="clip")
    candidates = candidates.reshape(index.shape)
    best = jnp.argmax(candidates, -1, keepdims=True)
    results = (jnp.take_along_axis(v, best, -1, mode="clip") for v in (candidates, index))
    shape = (*self.shape[:-rank], *output_size)
    return tuple(v.reshape(shape) for v in results)


@lowers(aten.max_unpool2d, aten.max_unpool3d)
def max_unpool(self, indices, output_size, *_):
    """In 3d torch names stride and padding, too, which the output's size makes needless."""
    rank = len(output_size)
    values, places = flat(self, rank), flat(indices, rank)
    lead = values.shape[:-1]
    values, places = (v.reshape(math.prod(lead), v.shape[-1]) for v in (values, places))
    return place(values, places, math.prod(output_size)).reshape(*lead, *output_size)
