"""Random numbers that do not come from torch: a compiled program cannot draw them again."""

from __future__ import annotations

import contextlib
import pickle
import random
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from anyjax import warn_once
from anyjax.errors import FrozenDraw


@contextlib.contextmanager
def noticed() -> Iterator[None]:
    """Warns where code that is being compiled drew with Python's or numpy's generator."""
    python, numpy = random.getstate(), _numpy()
    yield
    generators = ["Python's random"] * (random.getstate() != python) + ["np.random"] * (
        _numpy() != numpy
    )
    if generators and isinstance(jnp.zeros(()), jax.core.Tracer):  # a program is being made
        warn_once.warn(
            f"forward drew with {' and '.join(generators)}: the compiled program repeats these "
            "numbers in every call. Switch the drawing off in the model's config (layerdrop=0, "
            "apply_spec_augment=False), or draw with torch and pass rng",
            FrozenDraw,
        )


def _numpy() -> bytes:
    return pickle.dumps(np.random.get_state())
