"""Tables of vectors: embedding, embedding_bag, one_hot."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.numerics import packed_matrix
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import default_int, wide
from anyjax.torch.ops.index import FAST, known, rows

SUM, MEAN, MAX = range(3)


def lookup(weight, indices, padding_idx, scale_grad_by_freq):
    """The options touch the gradient alone: none for ``padding_idx``, or divided by the count."""
    out = rows(weight, indices, 0)
    if scale_grad_by_freq:
        count = jnp.zeros(weight.shape[:1], weight.dtype).at[indices].add(1, mode=FAST)
        fixed = lax.stop_gradient(out)
        out = fixed + (out - fixed) / count[indices][..., None]
    if padding_idx is not None and padding_idx >= 0:
        is_padding = jnp.expand_dims(indices == padding_idx, -1)
        out = jnp.where(is_padding, lax.stop_gradient(out), out)
    return out


@lowers(aten.embedding)
def embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse):
    """torch raises for a token that the table does not have; a program gives NaN."""
    if indices.dtype.itemsize < 4:  # whose numbers may be fewer than the rows
        indices = lax.convert_element_type(indices, jnp.int32)
    if (short := packed_matrix.packed_form(weight)) is not None:
        rows = short.rows(indices)
    else:
        rows = lookup(weight, indices, padding_idx, scale_grad_by_freq)
    inside = (indices >= 0) & (indices < weight.shape[0])
    if not isinstance(inside, jax.core.Tracer) and not inside.all():
        raise ValueError(f"index out of range in a table of {weight.shape[0]} rows")
    floats = jnp.issubdtype(rows.dtype, jnp.inexact)
    return jnp.where(inside[..., None], rows, jnp.nan) if floats else rows


@lowers(aten.embedding_renorm)
def embedding_renorm(self, indices, max_norm, norm_type):
    """Rows that are looked up and too long come back at the greatest length allowed."""
    used = jnp.zeros(self.shape[:1], bool).at[indices.reshape(-1)].set(True, mode=FAST)
    norm = jnp.linalg.norm(self, norm_type, axis=1)
    scale = jnp.where(used & (norm > max_norm), max_norm / (norm + 1e-7), 1)
    return self * lax.stop_gradient(scale)[:, None].astype(self.dtype)


@lowers(aten._embedding_bag, aten._embedding_bag_forward_only)
def embedding_bag(
    weight,
    indices,
    offsets,
    scale_grad_by_freq,
    mode,
    sparse,
    per_sample_weights,
    include_last_offset,
    padding_idx,
):
    """The results after the first are what torch's backward needs, but for the bag's sizes."""
    bags = offsets.shape[0] - bool(include_last_offset)
    place = jnp.arange(indices.shape[0], dtype=indices.dtype)
    bag = jnp.searchsorted(offsets[:bags], place, side="right").astype(indices.dtype) - 1
    keep = (indices != padding_idx) & (bag >= 0) if padding_idx >= 0 else bag >= 0
    if include_last_offset:
        keep &= place < offsets[-1]
    rows = wide(lookup(weight, indices, padding_idx, scale_grad_by_freq))
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    total = lambda x: jax.ops.segment_sum(x, bag, bags)
    size = total(keep.astype(default_int()))
    winner = jnp.zeros((0,), default_int())
    if mode == MAX:
        out, winner = highest(rows, indices, bag, keep, bags)
    else:
        out = total(jnp.where(keep[:, None], rows, 0))
        out = out / jnp.maximum(size, 1)[:, None].astype(out.dtype) if mode == MEAN else out
    return out.astype(weight.dtype), bag, size, winner


def highest(found, indices, bag, keep, bags):
    """The greatest value of each bag and column and which row it came from, the first of equals."""
    values = jnp.where(keep[:, None], lax.stop_gradient(found), -jnp.inf)
    top = jax.ops.segment_max(values, bag, bags)
    place = jnp.arange(len(found))[:, None]
    hit = (values == top[bag]) & keep[:, None]
    first = jax.ops.segment_min(jnp.where(hit, place, len(found)), bag, bags)
    empty = (first < 0) | (first >= len(found))
    first = jnp.where(empty, 0, first)
    out = jnp.where(empty, 0, jnp.take_along_axis(found, first, 0))
    return out, jnp.where(empty, -1, indices[first])


@lowers(aten.one_hot)
def one_hot(self, num_classes):
    """Without ``num_classes`` the values decide the shape."""
    if num_classes < 0:
        num_classes = int(known(self).max(initial=-1)) + 1
    return jax.nn.one_hot(self, num_classes, dtype=default_int())
