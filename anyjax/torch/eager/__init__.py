"""torch code on JAX arrays, operator by operator: ``with anyjax.torch.on_jax():``."""
