"""Dimensions whose length is a traced number within a bound: ``x[mask]``, dynamic sizes."""
