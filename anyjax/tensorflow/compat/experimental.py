"""``tf2jax.experimental``."""

from anyjax.tensorflow.compat import mhlo

__all__ = ["mhlo"]
