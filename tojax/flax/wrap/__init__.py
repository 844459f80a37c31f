"""A module of Flax's around a model: nnx.py, linen.py, and what the two share."""
