"""A block of a model is traced once, its siblings of which that can be shown are not run."""
