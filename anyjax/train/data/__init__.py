"""Batches: loading, shuffling, packing, resuming."""
