"""Keys of random operators: from ``on_jax(rng=key)``, or seeds that torch's generator draws.

So ``torch.manual_seed``, generators and ``torch.utils.checkpoint`` mean what they mean in torch,
and no two draws have the same key. A program that JAX compiles would repeat the seed in every call:
there, a key has to be given.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax.errors import MissingRng
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.keys import Keys

_THREAD = threading.local()


class Forbidden(Exception):
    """An operator that is not said to be random draws numbers: no program is kept of it."""


@contextlib.contextmanager
def drawing(keys: Keys | None) -> Iterator[None]:
    """Draws from these keys for a while; without any, from where it was."""
    with _source(_current() if keys is None else keys):
        yield


@contextlib.contextmanager
def forbidden() -> Iterator[None]:
    """Raises Forbidden where something draws."""
    with _source(Forbidden):
        yield


@contextlib.contextmanager
def _source(new: object) -> Iterator[None]:
    outer, _THREAD.source = _current(), new
    try:
        yield
    finally:
        _THREAD.source = outer


def _current() -> Any:
    return getattr(_THREAD, "source", None)


def drawn() -> jax.Array | np.ndarray | None:
    """Returns a key or seed for a program; None inside another one that has no key."""
    source = _current()
    has_key = isinstance(source, Keys)
    return None if source is Forbidden or (not has_key and compiling()) else draw("a program")


def draw(op: object, generator: torch.Generator | None = None) -> jax.Array | np.ndarray:
    """Returns a key, or a seed of 64 bits, for a random operator."""
    source = _current()
    if source is Forbidden:
        raise Forbidden
    if isinstance(source, Keys) and generator is None:
        return source.draw(op)
    with private.DisableTorchDispatch():
        seed = torch.empty(1, dtype=torch.int64).random_(generator=generator)
        return seed.view(torch.int32).numpy().view(np.uint32)


def compiling() -> bool:
    """Returns whether JAX is tracing a program."""
    return isinstance(jnp.zeros(()), jax.core.Tracer)


def check_fresh(op: object, seed: jax.Array | np.ndarray) -> None:
    """Raises MissingRng where a seed would be a constant of a program that JAX compiles."""
    if isinstance(seed, np.ndarray) and compiling():
        raise MissingRng(
            f"{op} draws random numbers inside a program that JAX compiles",
            where=diagnostics.where(),
            why="the seed would be a constant of the program: the same numbers in every call",
            do="give a key: with anyjax.torch.on_jax(rng=key): ..., or compile the function with "
            "anyjax.torch.interop.jax_jit, which gives it one",
        )


def as_key(seed: jax.Array | np.ndarray) -> jax.Array:
    """Returns the key of a seed; a key as it is."""
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return jnp.asarray(seed)
    return jax.random.fold_in(jax.random.key(seed[0]), seed[1])
