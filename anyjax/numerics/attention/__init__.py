"""Attention: one operator for all frontends, which each platform computes by its own kernel."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import jax
import jax.numpy as jnp

from anyjax.numerics.attention import blocks, plain, primitive
from anyjax.numerics.attention.cuda import KERNELS, in_blocks
from anyjax.numerics.attention.form import Form
from anyjax.numerics.attention.plain import pairs, row_weights

__all__ = [
    "KERNELS",
    "Form",
    "attend",
    "by_formula",
    "form_of",
    "in_blocks",
    "pairs",
    "row_weights",
]

SMALLEST = 128  # rows and columns that a kernel is worth its start for
_BY_FORMULA: ContextVar[bool] = ContextVar("attention by its formula", default=False)


@contextlib.contextmanager
def by_formula() -> Iterator[None]:
    """Leaves kernels out of what is traced inside: all scores stand at once, on any platform."""
    token = _BY_FORMULA.set(True)
    try:
        yield
    finally:
        _BY_FORMULA.reset(token)


def form_of(query: jax.Array, scale: float | None = None, **limits) -> Form:
    """Returns the form of an attention that is traced now; scores are divided by the root of the
    width where no scale is given.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return Form(scale, precision=precision, **limits)


def attend(form: Form, query, key, value, *masks, drop: Callable | None = None) -> jax.Array:
    """Returns the result of an attention, [batch, heads, length, width of values].

    Args:
      form: its static part.
      query: [batch, heads, length, width].
      key, value: [batch, heads of keys, source, width]; query heads share them in groups.
      masks: of bool, True where a row sees a column, or numbers that are added to the scores; they
        broadcast to [batch, heads, length, source]. A row that sees nothing gives zeros.
      drop: a function of the weights of a block of rows and of the block's number, as dropout.

    Example:
      >>> q = k = v = jnp.ones((1, 2, 4, 8))
      >>> attend(form_of(q, causal=True), q, k, v).shape
      (1, 2, 4, 8)
    """
    large = is_large(query, key)
    if (large or _is_one_row(query, key)) and _for_kernels(query, key, value, masks):
        if drop is None:
            return primitive.attention(form, query, key, value, *masks)
        if large:
            return blocks.dropped(form, drop, query, key, value, *masks)
    return plain.result(form, query, key, value, *masks, drop=drop)


def _for_kernels(query, key, value, masks: tuple) -> bool:
    """Whether the arrays are as the operator takes them, and large."""
    if _BY_FORMULA.get():
        return False
    arrays = query, key, value
    if any(x.ndim != 4 for x in arrays) or any(x.ndim > 4 for x in masks):
        return False
    if not all(isinstance(n, int) for x in (*arrays, *masks) for n in x.shape):
        return False  # unknown until a program is called
    same = query.dtype == key.dtype == value.dtype and jnp.issubdtype(query.dtype, jnp.floating)
    batch = query.shape[0] == key.shape[0] == value.shape[0]
    heads = key.shape[1] == value.shape[1] and query.shape[1] % key.shape[1] == 0
    manual = jax.sharding.get_abstract_mesh().manual_axes  # a part of a shard_map is plain
    return same and batch and heads and not manual


def is_large(query, key) -> bool:
    """Returns whether a kernel is worth its start for these rows and columns."""
    length, source = query.shape[-2], key.shape[-2]
    if not isinstance(length, int) or not isinstance(source, int):
        return False  # unknown until a program is called
    return min(length, source) >= SMALLEST


def _is_one_row(query, key) -> bool:
    """Whether each head has one row and keys of its own, as where a token is decoded."""
    source = key.shape[-2]
    if query.shape[-3:-1] != (*key.shape[-3:-2], 1):
        return False
    return isinstance(source, int) and source >= SMALLEST
