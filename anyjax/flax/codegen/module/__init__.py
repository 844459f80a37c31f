"""A block as a class: its layers, its body, its loops."""
