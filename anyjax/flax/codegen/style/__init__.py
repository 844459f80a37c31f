"""The two styles of Flax: nnx and Linen."""
