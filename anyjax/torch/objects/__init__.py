"""Python's objects around a model: what holds what, and how it is walked, copied and put back."""
