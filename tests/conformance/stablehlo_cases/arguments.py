"""Arguments from a word each: ``f3,4`` is a float32 matrix; drawn from the name of the case."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np


class Case(NamedTuple):
    """A function of arrays, its arguments as words, and how many numbers a result sums."""

    function: Callable
    spec: str
    depth: int = 64
    x64: bool = False

    def arguments(self, name: str) -> list[np.ndarray]:
        """The same at every call."""
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        return [_draw(rng, word) for word in self.spec.split()]


def _draw(rng: Any, word: str) -> np.ndarray:
    shape = tuple(int(x) for x in word[1:].split(",") if x)
    normal = lambda: rng.standard_normal(shape)
    made = {
        "f": lambda: normal().astype(np.float32),
        "d": lambda: normal(),
        "p": lambda: rng.uniform(0.3, 2.0, shape).astype(np.float32),
        "u": lambda: rng.uniform(-0.9, 0.9, shape).astype(np.float32),
        "q": lambda: rng.uniform(0.1, 0.9, shape).astype(np.float32),  # a probability
        "g": lambda: rng.uniform(1.2, 4.0, shape).astype(np.float32),
        "o": lambda: np.sort(normal().astype(np.float32), -1),  # in order
        "h": lambda: normal().astype(ml_dtypes.bfloat16),
        "t": lambda: normal().astype(np.float16),
        "c": lambda: (normal() + 1j * normal()).astype(np.complex64),
        "n": lambda: np.where(rng.uniform(size=shape) < 0.3, np.nan, normal()).astype(np.float32),
        "i": lambda: rng.integers(0, 8, shape).astype(np.int32),
        "j": lambda: rng.integers(0, 3, shape).astype(np.int32),
        "s": lambda: rng.integers(-9, 9, shape).astype(np.int32),
        "x": lambda: np.where(rng.uniform(size=shape) < 0.5, 1, -1) * rng.integers(1, 9, shape),
        "l": lambda: rng.integers(0, 8, shape, np.int64),
        "z": lambda: normal() + 1j * normal(),
        "w": lambda: rng.integers(0, 2**32, shape, np.uint32),
        "y": lambda: rng.integers(0, 256, shape).astype(np.uint8),
        "b": lambda: rng.uniform(size=shape) < 0.5,
        "m": lambda: _definite(normal()),  # symmetric and positive definite
        "M": lambda: _definite(normal() + 1j * normal()),
        "k": lambda: rng.integers(0, 2**32, 2, np.uint32),  # a key
    }
    drawn = np.asarray(made[word[0]]())
    return drawn.astype(np.int32) if word[0] == "x" else drawn


def _definite(x: np.ndarray) -> np.ndarray:
    square = x @ np.conj(np.swapaxes(x, -1, -2)) + x.shape[-1] * np.eye(x.shape[-1])
    return square.astype(np.complex64 if np.iscomplexobj(x) else np.float32)


def named(prefix: str, module: ModuleType, words: Mapping[str, str]) -> dict[str, Case]:
    """Cases of a module's functions: names, separated by spaces -> the arguments of each."""
    return {
        f"{prefix}.{name}": Case(getattr(module, name), spec)
        for names, spec in words.items()
        for name in names.split()
        if hasattr(module, name)
    }


def lines(prefix: str, rows: Iterable[tuple]) -> dict[str, Case]:
    """Cases of functions that need more said: (name, arguments, function, depth)."""
    return {f"{prefix}.{name}": Case(function, spec, *more) for name, spec, function, *more in rows}


def listing(cases: dict[str, Case], group: str):
    """A decorator ``case(spec, depth)`` that lists functions under their names."""

    def case(spec, depth=64, **more):
        def add(function):
            cases[f"{group}.{function.__name__}"] = Case(function, spec, depth, **more)
            return function

        return add

    return case
