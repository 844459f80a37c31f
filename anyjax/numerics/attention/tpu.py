"""Attention on TPUs: splash attention of JAX, or rows in blocks for what it does not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.numerics.attention import blocks, plain
from anyjax.numerics.attention.form import Form
from anyjax.private_names import need

SMALLEST = 256**2  # scores of a head that the kernel is worth its start for
VMEM = 2**22  # scores that may stay in it
ROWS = 8  # of a tile of the matrix unit
TURNS = 8  # that a batch is computed in at most: each is code of its own
TILE = 128  # rows and columns come in tiles of that many
NOTHING = -1e37  # sums of rows that see less are those of the kernel's mask alone
BLOCK = 768  # rows and columns of a block of the kernel at most


def _splash(name: str) -> Any:
    """Returns a name of JAX's splash attention, which loads Pallas when it is first asked for."""
    file = "mask" if name.endswith("Mask") else "kernel"
    folder = "jax.experimental.pallas.ops.tpu.splash_attention"
    return need(f"{folder}.splash_attention_{file}:{name}", "attention on TPUs")


def takes(form: Form, query, key, masks) -> bool:
    """Returns whether splash attention computes this: all but masks of pairs of positions."""
    of_columns = all(x.dtype == bool and x.shape[1:3] == (1, 1) for x in masks)
    return len(masks) <= 1 and of_columns and query.shape[-2] * key.shape[-2] >= SMALLEST


def attend(form: Form, query, key, value, *masks, interpret: bool = False):
    """Returns (result, sums) as ``plain.attend``; ``interpret`` is for CPUs."""
    if query.shape[-2] == 1:  # products of one row are not the matrix unit's: half as fast
        query = jnp.broadcast_to(query, (*query.shape[:2], ROWS, query.shape[-1]))
        return tuple(x[:, :, :1] for x in plain.attend(form, query, key, value, *masks))
    if not takes(form, query, key, masks):
        run = lambda *x: blocks.attend(form, *x)
        return _in_turn(run, _at_once(query, key), query, key, value, *masks)
    length = query.shape[-2]
    arrays, segments, axes = _padded(form, query, key, value, *masks)
    kernel = _kernel(form, arrays, interpret)
    out, (sums,) = jax.vmap(kernel, (0, 0, 0, axes))(*arrays, segments)
    out, sums = out[..., :length, :], sums[..., :length]
    if not masks and form.all_see(length, key.shape[-2]):
        return out, sums
    sees = sums > NOTHING
    return jnp.where(sees[..., None], out, 0), jnp.where(sees, sums, jnp.inf)


def backward(
    form: Form, query, key, value, masks, out, sums, cotangent, active, interpret: bool = False
):
    """Returns cotangents as ``blocks.backward``."""
    if not takes(form, query, key, masks):
        count = len(query) if any(active[3:]) else _at_once(query, key)

        def run(query, key, value, *rest):
            masks, (out, sums, cotangent) = rest[:-3], rest[-3:]
            return blocks.backward(form, query, key, value, masks, out, sums, cotangent, active)

        return _in_turn(run, count, query, key, value, *masks, out, sums, cotangent)
    length, source = query.shape[-2], key.shape[-2]
    arrays, segments, axes = _padded(form, query, key, value, *masks)
    rows = arrays[0].shape[-2]
    out, cotangent = (_pad(x, rows) for x in (out, cotangent))
    sums = _pad(sums[..., None], rows)[..., 0]
    kernel = _kernel(form, arrays, interpret)
    pull = lambda *arrays: _pull(kernel, *arrays)
    of = jax.vmap(pull, (axes, *[0] * 6))(segments, *arrays, out, sums, cotangent)
    of_query = of[0][..., :length, :] * of[0].dtype.type(form.scale)
    return of_query, *(x[..., :source, :] for x in of[1:]), None


def _at_once(query, key) -> int:
    """Returns how many rows of the batch have scores that stay in VMEM together."""
    batch, heads, length, _ = query.shape
    if length * key.shape[-2] >= SMALLEST:  # one row's do not
        return batch
    most = max(1, VMEM // (heads * length * key.shape[-2]))
    count = next(n for n in range(min(most, batch), 0, -1) if batch % n == 0)
    return count if batch // count <= TURNS else batch


def _in_turn(run: Callable, count: int, *arrays):
    """Calls ``run`` for so many rows of a batch at a time; arrays of one row have it each time."""
    batch = len(arrays[0])
    if count == batch:
        return run(*arrays)
    rows = lambda x, i: lax.slice_in_dim(x, i, i + count) if len(x) == batch else x
    turns = [run(*(rows(x, i) for x in arrays)) for i in range(0, batch, count)]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *turns)


def _pad(x, length):
    return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, length - x.shape[-2]), (0, 0)])


def _padded(form: Form, query, key, value, *masks):
    """Returns arrays of whole tiles with scaled queries, the segments that keep apart what no row
    sees, and their axes for ``vmap``.
    """
    length, source = query.shape[-2], key.shape[-2]
    rows, columns = map(_whole, (length, source))
    scaled = (query.astype(jnp.float32) * form.scale).astype(query.dtype)
    arrays = _pad(scaled, rows), _pad(key, columns), _pad(value, columns)
    # no row that counts sees beyond its own column
    bounded = columns == source or (form.causal and length + form.shift <= source)
    if bounded and not masks:
        return arrays, None, None
    seen = masks[0][:, 0, 0] if masks else jnp.ones((1, source), bool)
    seen = jnp.pad(seen, [(0, 0), (0, columns - source)])
    of_columns = jnp.broadcast_to(1 - seen.astype(jnp.int32), (len(query), columns))
    segments = _splash("SegmentIds")
    return arrays, segments(jnp.zeros(rows, jnp.int32), of_columns), segments(None, 0)


def _whole(length: int) -> int:
    """Returns a length of whole tiles that can be cut into large blocks."""
    tiled = -(-length // TILE) * TILE
    return tiled if _block(tiled) > TILE or tiled == TILE else -(-length // BLOCK) * BLOCK


def _block(length: int) -> int:
    """Returns the largest block that divides a length of whole tiles."""
    return next(n for n in range(BLOCK, 0, -TILE) if length % n == 0)


def _kernel(form: Form, arrays, interpret: bool) -> Any:
    query, key, _ = arrays
    heads, shape = query.shape[1], (query.shape[2], key.shape[2])
    if form.window is not None:
        mask = _splash("LocalMask")(shape, (form.window - 1, 0), form.shift)
    elif form.causal:
        mask = _splash("CausalMask")(shape, form.shift)
    else:
        mask = _splash("FullMask")(shape)
    rows, columns = map(_block, shape)
    sizes = _splash("BlockSizes")(
        block_q=rows,
        block_kv=columns,
        block_q_dkv=rows,
        block_kv_dkv=columns,
        block_q_dq=rows,
        block_kv_dq=columns,
    )
    return _splash("make_splash_mha")(
        _splash("MultiHeadMask")([mask] * heads),
        block_sizes=sizes,
        head_shards=1,
        q_seq_shards=1,
        save_residuals=True,
        attn_logits_soft_cap=form.cap,
        interpret=interpret,
    )


def _pull(kernel: Any, segments, query, key, value, out, sums, cotangent):
    names = "mask_value is_mqa block_sizes residual_checkpoint_name mask_function "
    names += "attn_logits_soft_cap interpret"
    options = {k: kernel.kwargs[k] for k in names.split()}
    info = kernel.dq_mask_info, kernel.dkv_mask_info
    residuals = query, key, value, segments, None, out, sums, *info
    of = _splash("_splash_attention_bwd")(False, *options.values(), residuals, cotangent)
    return of[3:6]
