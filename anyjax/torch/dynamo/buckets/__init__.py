"""Sizes rounded up to buckets: one program for many sizes, with the values of each."""
