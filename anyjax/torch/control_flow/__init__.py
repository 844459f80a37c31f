"""Branches and loops as JAX's own."""
