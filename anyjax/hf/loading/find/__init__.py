"""A checkpoint's files, and what is wrong with them; needs neither torch nor JAX."""
