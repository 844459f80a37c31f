"""Fourier transforms of signals, whose last axis holds real and imaginary parts, and mel bins."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import canonical
from anyjax.onnx.core.schema import Static, lowers


def transformed(x, size, axis, inverse, onesided):
    """Transforms along an axis, in float32 at least."""
    wide = x.astype(jnp.promote_types(x.dtype, np.float32))
    is_real, axis = x.shape[-1] == 1, axis % x.ndim
    signal = wide[..., 0] if is_real else lax.complex(wide[..., 0], wide[..., 1])
    if inverse and onesided:
        return jnp.fft.irfft(signal, size, axis)[..., None].astype(x.dtype)
    if is_real and not inverse:  # of which the middle is real to the last bit
        out = jnp.fft.rfft(signal, size, axis)
        if not onesided:
            size = x.shape[axis] if size is None else size
            rest = lax.slice_in_dim(out, 1, (size + 1) // 2, axis=axis)
            out = jnp.concatenate([out, lax.rev(rest.conj(), (axis,))], axis)
    else:
        out = (jnp.fft.ifft if inverse else jnp.fft.fft)(signal, size, axis)
        if onesided:
            out = lax.slice_in_dim(out, 0, out.shape[axis] // 2 + 1, axis=axis)
    return jnp.stack([out.real, out.imag], -1).astype(x.dtype)


@lowers("DFT")
def dft(input, dft_length: Static, axis: Static, inverse, onesided):
    axis = -2 if axis is None else int(axis.item())
    size = None if dft_length is None else int(dft_length.item())
    return transformed(input, size, axis, inverse, onesided)


@lowers("STFT")
def stft(signal, frame_step: Static, window, frame_length: Static, onesided):
    signal = signal[..., None] if signal.ndim == 2 else signal  # as torch exports it
    length = signal.shape[1]
    if frame_length is not None:
        length = int(frame_length.item())
    elif window is not None:
        length = window.shape[0]
    starts = np.arange(0, signal.shape[1] - length + 1, int(frame_step.item()))
    frames = signal[:, starts[:, None] + np.arange(length)]
    frames = frames if window is None else frames * window[:, None]
    return transformed(frames, None, -2, False, onesided)


@lowers("MelWeightMatrix")
def mel_weight_matrix(
    num_mel_bins: Static, dft_length: Static, sample_rate: Static, lower_edge_hertz: Static,
    upper_edge_hertz: Static, output_datatype,
):  # fmt: skip
    """A triangle of frequencies for each bin, with corners at whole places of the transform."""
    bins = np.arange(num_mel_bins.item() + 2)
    low, high = (
        2595 * np.log1p(x / 700) / np.log(10) for x in (lower_edge_hertz, upper_edge_hertz)
    )
    hertz = 700 * np.expm1((bins * ((high - low) / len(bins)) + low) / 2595 * np.log(10))
    places = ((dft_length.item() + 1) * hertz // sample_rate.item()).astype(int)
    low, middle, high = places[:-2], places[1:-1], places[2:]
    at = np.arange(dft_length.item() // 2 + 1)[:, None]
    up = np.where(middle == low, 1, (at - low) / np.maximum(middle - low, 1))
    down = (high - at) / np.maximum(high - middle, 1)
    weights = np.where((at >= low) & (at <= middle), up, 0)
    weights = np.where((at > middle) & (at < high), down, weights)
    return jnp.asarray(weights, canonical(output_datatype))
