"""Fourier transforms; torch's own decompositions pad, cut and scale for all of aten.fft_*."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import floating
from anyjax.torch.ops.window import fold

FORWARD = ("backward", "ortho", "forward")  # by torch's number: not scaled, by sqrt(n), by n
INVERSE = ("forward", "ortho", "backward")


@lowers(aten._fft_c2c)
def c2c(self, dim, normalization, forward):
    if forward:
        return jnp.fft.fftn(self, axes=dim, norm=FORWARD[normalization])
    return jnp.fft.ifftn(self, axes=dim, norm=INVERSE[normalization])


@lowers(aten._fft_r2c)
def r2c(self, dim, normalization, onesided):
    transform = jnp.fft.rfftn if onesided else jnp.fft.fftn
    return transform(self, axes=dim, norm=FORWARD[normalization])


@lowers(aten._fft_c2r)
def c2r(self, dim, normalization, last_dim_size):
    sizes = [self.shape[d] for d in dim[:-1]] + [last_dim_size]
    return jnp.fft.irfftn(self, sizes, axes=dim, norm=INVERSE[normalization])


@lowers(aten.istft)
def istft(
    self,
    n_fft,
    hop_length,
    win_length,
    window,
    center,
    normalized,
    onesided,
    length,
    return_complex,
):
    """Overlapping frames are added and divided by the added squares of the window."""
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    onesided = (self.shape[-2] != n_fft) if onesided is None else onesided
    frames = jnp.swapaxes(self, -1, -2)
    scale = "ortho" if normalized else "backward"
    if return_complex:
        frames = jnp.fft.ifft(frames, norm=scale)
    else:
        half = frames[..., : n_fft // 2 + 1]
        frames = jnp.fft.irfft(half, n_fft, norm=scale)
    window = jnp.ones(width, frames.real.dtype) if window is None else floating(window)
    left_pad = (n_fft - width) // 2
    window = lax.pad(window, window.dtype.type(0), [(left_pad, n_fft - width - left_pad, 0)])
    size = n_fft + hop * (frames.shape[-2] - 1)
    added = overlap(frames * window, size, hop)
    weight = overlap(jnp.broadcast_to(jnp.square(window), frames.shape[-2:]), size, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else size - (n_fft // 2 if center else 0)
    out = added[..., start:end] / weight[start:end]
    missing = 0 if length is None else length - out.shape[-1]
    return jnp.pad(out, [(0, 0)] * (out.ndim - 1) + [(0, missing)])


def overlap(frames, size, hop):
    """Frames laid ``hop`` apart and added."""
    shape = (*frames.shape[:-2], size)
    return fold(frames, shape, -1, frames.shape[-1], hop)
