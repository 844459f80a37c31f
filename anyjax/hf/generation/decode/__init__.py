"""Decoding on the device: caches, one step, beams, the loop as one program."""
