"""Fourier transforms of the innermost axes, or of those named."""

from __future__ import annotations

import jax.numpy as jnp

from anyjax.tensorflow.core.schema import Static, table


def inner(function, rank):
    """Makes a lowering of a transform of the last ``rank`` axes."""
    return lambda input: function(input, axes=range(-rank, 0))


def real(function, rank):
    """Makes a lowering of a transform that cuts or pads the axes to ``fft_length``."""

    def lowering(input, fft_length: Static, dtype, /):
        return function(input, [int(n) for n in fft_length], axes=range(-rank, 0))

    return lowering


for rank, suffix in enumerate(("", "2D", "3D"), 1):
    for name, function in {"FFT": jnp.fft.fftn, "IFFT": jnp.fft.ifftn}.items():
        table.update(
            dict.fromkeys((f"{name}{suffix}", f"Batch{name}{suffix}"), inner(function, rank))
        )
    table.update(
        {f"RFFT{suffix}": real(jnp.fft.rfftn, rank), f"IRFFT{suffix}": real(jnp.fft.irfftn, rank)}
    )


def named(function):
    """Makes a lowering of a transform of the axes named."""

    def lowering(input, fft_length: Static, axes: Static, dtype=None, /):
        return function(input, [int(n) for n in fft_length], axes=[int(a) for a in axes])

    return lowering


table.update(
    {
        "FFTND": named(jnp.fft.fftn),
        "IFFTND": named(jnp.fft.ifftn),
        "IRFFTND": named(jnp.fft.irfftn),
        "RFFTND": named(jnp.fft.rfftn),
    }
)
