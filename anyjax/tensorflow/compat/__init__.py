"""tf2jax's public names, for code that uses it."""
