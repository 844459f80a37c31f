"""``tf2jax.experimental``."""

from tojax.tensorflow.compat import mhlo

__all__ = ["mhlo"]
