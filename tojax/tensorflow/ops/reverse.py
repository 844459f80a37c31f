"""Turning arrays round: whole axes, parts of them, circles."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax.tensorflow.core.known import is_known
from tojax.tensorflow.core.known import shape as sizes
from tojax.tensorflow.core.schema import Known, Static, lowers


@lowers("ReverseV2")
def reverse(tensor, axis: Static):
    return lax.rev(tensor, [int(i) % tensor.ndim for i in axis])


@lowers("Reverse")
def reverse_v1(tensor, dims: Static):
    return lax.rev(tensor, np.flatnonzero(dims).tolist())


@lowers("Roll")
def roll(input, shift: Known, axis: Static):
    axes = sizes(np.ravel(axis))
    shift = sizes(np.ravel(shift)) if is_known(shift) else jnp.ravel(shift)
    return jnp.roll(input, shift, axes)


@lowers("ReverseSequence")
def reverse_sequence(input, seq_lengths, seq_dim, batch_dim):
    """The first so many elements of each row."""
    rank = input.ndim
    lengths = lax.expand_dims(seq_lengths, [i for i in range(rank) if i != batch_dim % rank])
    place = lax.broadcasted_iota(
        lengths.dtype, [n if i == seq_dim else 1 for i, n in enumerate(input.shape)], seq_dim
    )
    source = jnp.where(place < lengths, lengths - 1 - place, place)
    return jnp.take_along_axis(input, source, seq_dim, mode="promise_in_bounds")
