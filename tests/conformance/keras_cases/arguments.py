"""Keras layers with small example arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """A layer, a model or a function of tensors, and what it is called with.

    ``train``: "same" where training mode is determined by the state, "drawn" where it draws
    (``check(out, *args)`` then judges what came), "" where the layer has none. ``compiled``: only a
    ``tf.function`` of it is the reference. ``refused``: what the error says of a layer that JAX
    cannot have.
    """

    make: Callable[[], Any]
    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    train: str = "same"
    grad: bool = True
    vmap: bool = True
    check: Callable | None = None
    depth: int = 128
    compiled: bool = False
    refused: str = ""


def case(make: Callable[[], Any], *args: Any, **options: Any) -> Case:
    """A case whose arguments are arrays, or shapes of normal numbers."""
    made = (floats(*x) if isinstance(x, tuple) and _is_shape(x) else x for x in args)
    return Case(make, tuple(made), **options)


def _is_shape(x: tuple) -> bool:
    return all(isinstance(n, int) for n in x)


def floats(*shape: int) -> np.ndarray:
    """Normal numbers that differ, also from 0, so that kinks and ties are nowhere near."""
    rng = np.random.default_rng(sum(shape))
    x = rng.permutation(np.linspace(-1.5, 1.5, int(np.prod(shape)) + 1)[:-1]).reshape(shape)
    return (x + 0.003).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return np.abs(floats(*shape)) + np.float32(0.1)


def images(*shape: int) -> np.ndarray:
    """Values of pixels."""
    return ((floats(*shape) + 1.5) * 80).astype(np.float32)


def integers(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, high, shape).astype(np.int32)


def mask(*shape: int) -> np.ndarray:
    """True but for the ends of some rows."""
    on = np.ones(shape, bool)
    on[0, -2:] = False
    return on
