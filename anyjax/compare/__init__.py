"""Two models side by side: what records the values of each, and what judges their differences.

`anyjax.verify`, the check of `anyjax.flax.source` and the search of `load_into` stand on it.
"""
