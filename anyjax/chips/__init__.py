"""Accelerators: their published figures, and their compilers, which need none of them."""
