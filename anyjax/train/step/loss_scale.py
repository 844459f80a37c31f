"""Loss scaling for float16, whose gradients would underflow: grows while they are finite, shrinks
when they are not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class LossScale(NamedTuple):
    """The scale and the number of finite steps since it changed; a pytree.

    Attributes:
      scale: float32, the factor of the loss before differentiation.
      good: int32, the number of finite steps in a row.
    """

    scale: jax.Array
    good: jax.Array

    @classmethod
    def initial(cls, scale: float) -> LossScale:
        """Returns the loss scale before the first step.

        Example:
          >>> LossScale.initial(1024.0).updated(False).scale.item()
          512.0
        """
        return cls(jnp.float32(scale), jnp.int32(0))

    def updated(self, finite: jax.Array | bool, every: int = 2000) -> LossScale:
        """Halves the scale after an overflow, doubles it after ``every`` finite steps in a row."""
        good = jnp.where(finite, self.good + 1, 0)
        grown = jnp.where(good == every, self.scale * 2, self.scale)
        scale = jnp.where(finite, grown, jnp.maximum(self.scale / 2, 1))
        return LossScale(scale, good % every)
