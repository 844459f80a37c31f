"""torch's autograd as JAX's: custom functions, hooks, and gradients that forward itself takes."""
