"""Rows of an unknown number: ``x[mask]``, ``nonzero``, ``split`` by traced sizes."""
