"""A module, operation by operation, as JAX."""
