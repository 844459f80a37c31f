"""One call of ``generate``: which way of decoding is right, and running it."""
