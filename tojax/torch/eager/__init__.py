"""torch code on JAX arrays, operator by operator: ``with tojax.torch.on_jax():``."""
