"""Branches, loops and custom gradients as JAX's own."""
