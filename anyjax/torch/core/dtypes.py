"""torch dtypes and JAX dtypes, and torch's promotion of mixed operands."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax.dtypes import canonical, x64
from anyjax.errors import Unsupported

_NAMES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]
TO_JAX = {getattr(torch, n): jnp.dtype(n) for n in _NAMES}
TO_TORCH = {v: k for k, v in TO_JAX.items()}
WIDE = {
    torch.int64: torch.int32,
    torch.uint64: torch.uint32,
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
}


def to_jax(dtype: torch.dtype | None) -> np.dtype | None:
    """Returns the JAX dtype of a torch dtype, narrowed where x64 is off.

    Raises:
      Unsupported: JAX has no such dtype (complex32, quantized ones).

    Example:
      >>> to_jax(torch.int64)
      dtype('int32')
    """
    if dtype is None:
        return None
    if dtype not in TO_JAX:
        raise Unsupported(
            f"the dtype {dtype}", why="JAX has no such type", do="use one that both have"
        )
    return canonical(TO_JAX[dtype])


def of_input(dtype: np.dtype) -> torch.dtype:
    """Returns the torch dtype that an input array is presented with: without x64, int32 stands for
    torch's int64.

    Example:
      >>> of_input(np.dtype("int32"))
      torch.int64
    """
    dtype = TO_TORCH[np.dtype(dtype)]
    return torch.int64 if dtype is torch.int32 and not x64() else dtype


def widened(array: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    """Returns an array as it is, one of a dtype that torch has not in one that holds its values.

    Raises:
      Unsupported: torch has none, as for the keys of random numbers.

    Example:
      >>> widened(jnp.ones(2, "int4")).dtype
      dtype('int8')
    """
    return array if array.dtype in TO_TORCH else array.astype(holding(array.dtype))


def holding(dtype: np.dtype) -> np.dtype:
    """Returns a dtype that torch has, too, which holds the values of this one.

    Raises:
      Unsupported: torch has none, as for the keys of random numbers.
    """
    if dtype in TO_TORCH:
        return dtype
    for kind, name in (
        (jnp.signedinteger, "int8"),
        (jnp.unsignedinteger, "uint8"),
        (jnp.floating, "float32"),
    ):
        if jnp.issubdtype(dtype, kind):
            return np.dtype(name)
    raise Unsupported(
        f"an array of {dtype} as a tensor",
        why="torch has no such dtype",
        do="pass the numbers that it stands for, of a key jax.random.key_data(key)",
    )


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype is not torch.bool)


def scalar_dtype(value: object) -> torch.dtype:
    """Returns the dtype that torch gives a Python number, or a symbolic size, among tensors."""
    if isinstance(value, bool):
        return torch.bool
    wide = torch.get_default_dtype()
    if isinstance(value, float):
        return wide
    if isinstance(value, complex):
        return torch.complex128 if wide is torch.float64 else torch.complex64
    return torch.int64


def promote(operands: Iterable[tuple[torch.dtype, int]]) -> torch.dtype:
    """torch's common dtype of operands given as (dtype, rank): 2 for tensors, 1 for 0-d tensors, 0
    for numbers.

    A lower rank counts only where its category (bool, integer, float, complex) is higher:
    https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc

    Example:
      >>> promote([(torch.int64, 2), (torch.float32, 0)])
      torch.float32
      >>> promote([(torch.bfloat16, 2), (torch.float32, 1)])
      torch.bfloat16
    """
    return _promote(frozenset(operands))


@lru_cache(None)
def _promote(operands: frozenset[tuple[torch.dtype, int]]) -> torch.dtype:
    result = None
    for rank in (2, 1, 0):
        level = None
        for dtype, r in operands:
            if r == rank:
                level = dtype if level is None else torch.promote_types(level, dtype)
        if level is None:
            continue
        if result is None:
            result = level
        elif _category(level) > _category(result):
            result = torch.promote_types(result, level) if result.is_floating_point else level
    assert result is not None
    return result
