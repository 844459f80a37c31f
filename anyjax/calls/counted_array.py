"""A result of as many elements as values decide."""

from __future__ import annotations

from typing import NamedTuple

import jax


class CountedArray(NamedTuple):
    """Elements of which the first ones count: a result like ``x[mask]`` of a compiled program.

    Outside of ``jax.jit`` such a result is an array of its own size.

    Attributes:
      values: all elements that there can be, shape [bound, ...]; those that do not count are 0.
      length: how many of them count along the open dimension, an integer []; where several
        dimensions are open an integer [dimensions], in their order.

    Example:
      >>> import anyjax, jax, jax.numpy as jnp
      >>> model = anyjax.from_torch(lambda x: x[x > 0])
      >>> rows = jax.jit(model.apply)({}, jnp.array([1.0, -2.0, 3.0]))
      >>> rows.values, int(rows.length)
      (Array([1., 3., 0.], dtype=float32), 2)
    """

    values: jax.Array
    length: jax.Array
