"""Loss scaling for float16, whose gradients would underflow: grows while they are finite, shrinks
when they are not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class LossScale(NamedTuple):
    """A pytree.

    Attributes:
      scale: float32, what the loss is multiplied by before it is differentiated.
      good: int32, how many steps in a row were finite.
    """

    scale: jax.Array
    good: jax.Array

    @classmethod
    def of(cls, scale: float) -> LossScale:
        """At the start.

        Example:
          >>> LossScale.of(1024.0).updated(False).scale.item()
          512.0
        """
        return cls(jnp.float32(scale), jnp.int32(0))

    def updated(self, finite: Any, every: int = 2000) -> LossScale:
        """After a step: half of it if that was not finite, twice after ``every`` that were."""
        good = jnp.where(finite, self.good + 1, 0)
        grown = jnp.where(good == every, self.scale * 2, self.scale)
        scale = jnp.where(finite, grown, jnp.maximum(self.scale / 2, 1))
        return LossScale(scale, good % every)
