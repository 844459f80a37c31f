"""Search in sequences that should be sorted, as C++ does it: also what NaN leads to."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def bisect(sequence, values, before: Callable) -> jax.Array:
    """Returns how many elements of a sequence come before each value, by halving.

    Where NaN, or a disorder, makes the answers contradict each other, the result is that of
    ``std::lower_bound`` and ``std::upper_bound``, which look at the same elements.

    Args:
      sequence: [..., n].
      values: [..., m].
      before: (elements, values) -> whether these elements come before these values.

    Returns:
      int32[..., m], from 0 to n.

    Example:
      >>> bisect(jnp.array([1, 2, 2, 4]), jnp.array([2, 9]), lambda x, v: x < v).tolist()
      [1, 4]
    """
    count = sequence.shape[-1]
    low = jnp.zeros_like(values, np.int32)  # of the axes that vmap gives the values, too
    if isinstance(count, int) and not count:
        return low
    steps = count.bit_length() if isinstance(count, int) else 31  # a symbolic size has any length
    last = jnp.asarray(count, np.int32)

    def step(_, ends):
        low, high = ends
        middle = low + (high - low) // 2
        place = jnp.minimum(middle, last - 1)
        element = jnp.take_along_axis(sequence, place, -1, mode="promise_in_bounds")
        further = before(element, values) & (low < high)
        return jnp.where(further, middle + 1, low), jnp.where(further, high, middle)

    return lax.fori_loop(0, steps, step, (low, low + last))[0]
