"""Ways in which torch code runs: in 64 bits, without dropout."""
