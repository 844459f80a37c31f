"""A Flax module around a model: nnx.py, linen.py, and their common parts."""
