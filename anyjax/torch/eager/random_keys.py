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


class Seeded(Keys):
    """Keys of eager code, which may last for longer than a program that JAX compiles."""

    def __init__(self, rng: jax.Array):
        super().__init__(rng)
        self.inside = compiling()  # it is this program's own key, a constant or not

    def fresh(self) -> bool:
        """Returns whether a draw differs from call to call, as far as this key is concerned."""
        return self.inside or not compiling()


class Forbidden(Exception):
    """An operator that is not said to be random draws numbers: no program is kept of it."""


@contextlib.contextmanager
def drawing(keys: Seeded | None) -> Iterator[None]:
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


def reseed(keys: Seeded) -> None:
    """Draws from these keys from now on, until the context that goes on is left."""
    _THREAD.source = keys


def _current() -> Any:
    return getattr(_THREAD, "source", None)


def drawn() -> jax.Array | np.ndarray | None:
    """Returns a key or seed for a program; None inside another one that has no key."""
    source = _current()
    fresh = source.fresh() if isinstance(source, Seeded) else not compiling()
    return draw("a program") if fresh and source is not Forbidden else None


def draw(op: object, generator: torch.Generator | None = None) -> jax.Array | np.ndarray:
    """Returns a key, or a seed of 64 bits, for a random operator."""
    source = _current()
    if source is Forbidden:
        raise Forbidden
    if isinstance(source, Seeded) and generator is None:
        if not source.fresh():
            raise repeated(op)
        return source.draw(op)
    with private.DisableTorchDispatch():
        seed = torch.empty(1, dtype=torch.int64).random_(generator=generator)
        return seed.view(torch.int32).numpy().view(np.uint32)


def compiled_with_key() -> bool:
    """Returns whether JAX is tracing a program that was given a key of its own."""
    source = _current()
    return isinstance(source, Seeded) and source.inside and compiling()


def compiling() -> bool:
    """Returns whether JAX is tracing a program."""
    return isinstance(jnp.zeros(()), jax.core.Tracer)


def check_fresh(op: object, seed: jax.Array | np.ndarray) -> None:
    """Raises MissingRng where a seed would be a constant of a program that JAX compiles."""
    if isinstance(seed, np.ndarray) and compiling():
        raise repeated(op)


def repeated(op: object) -> MissingRng:
    """Returns the error for a seed from outside of a program that JAX compiles."""
    return MissingRng(
        f"{op} draws random numbers inside a program that JAX compiles",
        where=diagnostics.where(),
        why="the seed would be a constant of the program: the same numbers in every call",
        do="give a key inside of it: with anyjax.torch.on_jax(rng=key): ..., or compile the "
        "function with anyjax.torch.interop.jax_jit, which gives it one",
    )


def as_key(seed: jax.Array | np.ndarray) -> jax.Array:
    """Returns the key of a seed; a key as it is."""
    if jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return jnp.asarray(seed)
    return jax.random.fold_in(jax.random.key(seed[0]), seed[1])
