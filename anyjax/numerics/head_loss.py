"""Cross entropy of a linear head in blocks of rows: its logits are never there as a whole.

A block's gradients are computed beside its loss, which takes three products, as kept logits do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.numerics.replicated import mesh_of

ROWS = 2048  # of a block on a device; with fewer, the weight's gradient is added to too often
SMALLEST = 1 << 26  # logits that blocks are worth it for


def linear_cross_entropy(
    hidden, weight, labels, bias=None, *, ignore_index=-100, pointwise=jnp.asarray, rows=None
) -> jax.Array:
    """Returns the sum of minus the logarithms of the labels' probabilities, which has derivatives
    of any order, forward and reverse.

    Args:
      hidden: [..., length, width]; a mesh may divide what comes before the length.
      weight, bias: [classes, width], [classes].
      labels: [..., length] of integers; NaN comes of one that is no class.
      ignore_index: the label of rows that do not count.
      pointwise: what is done to each logit, such as a cap.
      rows: positions in a block.

    Example:
      >>> hidden, labels = jnp.zeros((2, 6, 4)), jnp.zeros((2, 6), int)
      >>> round(float(linear_cross_entropy(hidden, jnp.ones((8, 4)), labels, rows=2)), 4)
      24.9533
    """
    # a derivative is traced later, in a context of its own
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    precision = "default" if hidden.dtype.itemsize < 4 else precision
    dot = functools.partial(lax.dot_general, precision=precision)
    rows = rows or block_of(hidden, weight) or hidden.shape[-2]
    hidden = hidden.reshape(-1, *hidden.shape[-2:])
    block = functools.partial(_block, dot, pointwise, ignore_index)
    run = functools.partial(_in_blocks, block, rows, ignored=ignore_index)
    total = jax.custom_jvp(lambda *arrays: run((), *arrays)[0])
    total.defjvp(functools.partial(_along, run), symbolic_zeros=True)
    return total(hidden, weight, bias, labels.reshape(hidden.shape[:2]).astype(jnp.int32))


def block_of(hidden: jax.Array, weight: jax.Array) -> int | None:
    """Returns how many positions a block should have, None where no blocks are needed."""
    if hidden.ndim < 2 or weight.ndim != 2:
        return None
    *batch, length, classes = *hidden.shape[:-1], weight.shape[0]
    if not all(isinstance(n, int) for n in (*batch, length, classes)):
        return None  # unknown until a program is called
    if math.prod(batch) * length * classes < SMALLEST:
        return None
    if jax.sharding.get_abstract_mesh().manual_axes:
        return None  # a part of a shard_map has few rows
    mesh = mesh_of(hidden, weight)
    most = ROWS * (1 if mesh is None else mesh.size) // math.prod(batch)
    count = -(-length // max(most, 1))
    return -(-length // count) if count > 1 else None


def _along(run: Callable, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """The gradients do not depend on the tangents: transposed, they are only scaled."""
    varying = {i: t for i, t in enumerate(tangents[:3]) if isinstance(t, jax.Array)}
    total, gradients = run(tuple(varying), *primals)
    dtype = total.dtype
    each = (jnp.sum(g.astype(dtype) * varying[i].astype(dtype)) for i, g in gradients.items())
    return total, sum(each, jnp.zeros_like(total))


def _in_blocks(block, rows, varying, hidden, weight, bias, labels, *, ignored):
    """Returns the sum, and its gradients by those of (hidden, weight, bias) that vary."""
    dtype = jnp.promote_types(hidden.dtype, jnp.float32)
    length, width = hidden.shape[1:]
    count = -(-length // rows)

    def split(x, value):
        pads = [(0, 0), (0, count * rows - length), *[(0, 0)] * (x.ndim - 2)]
        x = jnp.pad(x, pads, constant_values=value)
        return jnp.moveaxis(x.reshape(x.shape[0], count, rows, *x.shape[2:]), 1, 0)

    def add(sums, given):
        total, gradients = block(varying, weight, bias, *given)
        of_rows = gradients.pop(0, None)
        return jax.tree.map(jnp.add, sums, (total, gradients)), of_rows

    sums = {i: jnp.zeros_like((hidden, weight, bias)[i], dtype) for i in varying if i}
    blocks = split(hidden, 0), split(labels, ignored)
    (total, sums), of_rows = lax.scan(add, (jnp.zeros((), dtype), sums), blocks)
    if of_rows is not None:
        of_rows = jnp.moveaxis(of_rows, 0, 1).reshape(-1, count * rows, width)[:, :length]
    return total, sums if of_rows is None else {0: of_rows, **sums}


def _block(dot, pointwise, ignore_index, varying, weight, bias, hidden, labels):
    """Returns the sum over a block's rows and its gradients, wide where other blocks add theirs."""
    product = dot(hidden, weight, (((2,), (1,)), ((), ())))
    out, pull = jax.vjp(pointwise, product if bias is None else product + bias)
    logits = out.astype(jnp.promote_types(out.dtype, jnp.float32))
    norm = jax.nn.logsumexp(logits, -1, keepdims=True)
    counts, in_range = labels != ignore_index, (labels >= 0) & (labels < weight.shape[0])
    labels = jnp.where(counts, labels, -1)[..., None]
    # nothing that does not vary is as large as the logits: a loop would read it from memory
    chosen, zero = lax.iota(labels.dtype, weight.shape[0]) == labels, 0 * labels
    loss = norm[..., 0] - jnp.where(chosen, logits, zero.astype(logits.dtype)).sum(-1)
    total = jnp.where(counts, jnp.where(in_range, loss, jnp.nan), 0).sum()
    slope = jnp.exp(logits - jnp.where(counts[..., None], norm, jnp.inf)) - chosen
    (slope,) = pull(slope.astype(out.dtype))
    wide = {"preferred_element_type": total.dtype}
    gradients = {
        0: lambda: dot(slope, weight, (((2,), (0,)), ((), ()))),
        1: lambda: dot(slope, hidden, (((0, 1), (0, 1)), ((), ())), **wide),
        2: lambda: slope.sum((0, 1), dtype=total.dtype),
    }
    return total, {i: gradients[i]() for i in varying}
