"""Operators that other libraries register with torch, by name: they may never be imported."""

import jax
import jax.numpy as jnp

from tojax.torch.schema import lowers


@lowers("transformers.grouped_mm_fallback")
def grouped_mm_fallback(input, weight, offs):
    """``offs`` are the ends of the groups; ragged_dot leaves rows behind the last zero."""
    return jax.lax.ragged_dot(input, weight, jnp.diff(offs, prepend=0).astype(jnp.int32))
