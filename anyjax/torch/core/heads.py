"""Outputs of large linear heads that are still what the head gave, but for what is done to each
number by itself: a loss of them is computed from the head's input, in blocks of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import torch

from anyjax import trees
from anyjax.numerics import head_loss, packed_matrix
from anyjax.torch.core import current_trace

aten = torch.ops.aten

VIEWS = {aten.view.default, aten._unsafe_view.default, aten.clone.default}
NUMBERS = {aten.mul.Tensor, aten.div.Tensor, aten.tanh.default, aten._to_copy.default}
OPS = {aten.slice.Tensor} | VIEWS | NUMBERS


class Head(NamedTuple):
    """How an array was made: ``pointwise`` of each number in the product of rows and weight."""

    array: jax.Array  # kept, so that nothing else gets its id
    hidden: jax.Array
    weight: jax.Array
    bias: jax.Array | None
    pointwise: Callable[[jax.Array], jax.Array] = jnp.asarray


def head_of(array: jax.Array) -> Head | None:
    """Returns how an array of the trace that goes on was made, None for any but a head's output."""
    return getattr(current_trace.trace(), "heads", {}).get(id(array))


def begin(trace, step, out):
    """Keeps the output of the last large head."""
    in_numbers = {*map(type, out.shape)} <= {int}
    large = in_numbers and math.prod(out.shape) >= head_loss.SMALLEST
    if large and step.follows and _takes_blocks(out.array, *step.values):
        trace.heads.clear()  # of earlier ones, which may be no heads at all
        trace.heads[id(out.array)] = Head(out.array, *step.values)
    return out


def follow(heads, step, out):
    """Keeps what is made of the output of a head."""
    op, first = step.call.op, id(step.values[0]) if step.call.op in OPS else None
    if first in heads and step.follows:
        head = _next(heads[first], op, step.lowering, step.values[1:], out.array)
        if head is not None:
            heads[id(out.array)] = head


def _takes_blocks(array, hidden, weight, bias) -> bool:
    """Whether a loss of this product does; what is computed at once has its logits."""
    if not isinstance(array, jax.core.Tracer) or head_loss.block_of(hidden, weight) is None:
        return False
    same = hidden.dtype == weight.dtype and jnp.issubdtype(hidden.dtype, jnp.floating)
    return same and packed_matrix.packed_form(weight) is None


def _next(head: Head, op, lowering: Callable, rest: list, array: jax.Array) -> Head | None:
    """Returns how the result of an operator on a head's output was made, None if it is more."""
    old, hidden, weight, bias, pointwise = head
    if op in VIEWS:
        same_rows = array.ndim > 1 and array.shape[-1] == weight.shape[0]
        return Head(array, hidden, weight, bias, pointwise) if same_rows else None
    if op is aten.slice.Tensor:
        rows = old.shape[:-1] == hidden.shape[:-1] and (rest[0] + 1) % old.ndim
        return Head(array, lowering(hidden, *rest), weight, bias, pointwise) if rows else None
    if any(trees.is_array(x) for x in rest):
        return None
    then = lambda logits: lowering(pointwise(logits), *rest).astype(array.dtype)
    return Head(array, hidden, weight, bias, then)
