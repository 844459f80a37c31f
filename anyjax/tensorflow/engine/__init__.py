"""A graph, node by node, as JAX."""
