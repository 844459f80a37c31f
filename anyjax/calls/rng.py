"""The key of a call."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from anyjax.errors import WrongArguments


def check_key(rng: object) -> None:
    """Raises WrongArguments unless ``rng`` is None, a key, or a key's numbers.

    Example:
      >>> check_key(jax.random.key(0)), check_key(None)
      (None, None)
    """
    dtype = getattr(rng, "dtype", None)
    if rng is None or dtype == jnp.uint32:
        return
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        shown = repr(rng) if isinstance(rng, (int, float, str)) else f"a {type(rng).__name__}"
        raise WrongArguments(
            f"rng is {shown}, not a key",
            why="a JAX function gets its randomness as a key",
            do=f"pass rng=jax.random.key({rng if type(rng) is int else 0})",
        )
