"""64-bit integers that JAX computes in 32 bits."""
