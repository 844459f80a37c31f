"""Faults that are planted into models, for a test of `anyjax.verify`, and models without any."""
