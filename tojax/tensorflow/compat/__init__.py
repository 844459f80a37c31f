"""Names that users of tf2jax have in their code."""
