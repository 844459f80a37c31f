"""Attention on NVIDIA's GPUs: cuDNN's kernels, or rows in blocks for what they do not take."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

from anyjax.numerics.attention import blocks, plain
from anyjax.numerics.attention.form import Form
from anyjax.private_names import need

_FEATURE = "attention on GPUs"
_MODULE = "jax._src.cudnn.fused_attention_stablehlo"
# XLA's names of the kernels. JAX exports no program with them by itself, for it has no promise that
# a later release runs it; XLA has known these since 2023.
KERNELS = tuple(
    f"__cudnn$fmha{bias}Softmax{pass_}" for bias in ("", "ScaleBias") for pass_ in ("", "Backward")
)
_IN_BLOCKS: ContextVar[bool] = ContextVar("attention in blocks", default=False)
OLDEST = 8  # compute capability, Ampere's
WIDEST = 128  # heads that every GPU with these kernels takes; Hopper's take 256


@contextlib.contextmanager
def in_blocks() -> Iterator[None]:
    """Leaves cuDNN out of what is lowered inside: its kernels are made by the device alone, so that
    an executable that was compiled without one cannot run them.
    """
    token = _IN_BLOCKS.set(True)
    try:
        yield
    finally:
        _IN_BLOCKS.reset(token)


def serves(device: object) -> bool:
    """Returns whether a device has cuDNN's kernels: those before Ampere have not. One that is not
    known, as where a program is exported, is taken for one that has.
    """
    if _IN_BLOCKS.get():
        return False
    capability = getattr(device, "compute_capability", None)
    return capability is None or int(str(capability).partition(".")[0]) >= OLDEST


def takes(form: Form, query, key, value, masks, active=()) -> bool:
    """Returns whether cuDNN computes this, and the cotangents of the active arrays."""
    wide = max(query.shape[-1], value.shape[-1])
    shifted = form.causal and form.shift != 0
    even = not masks or all(n % 2 == 0 for n in (query.shape[-2], key.shape[-2]))
    dense = len(masks) <= 1 and not any(active[3:])
    return (
        query.dtype in (jnp.bfloat16, jnp.float16)
        and query.shape[-2] > 1
        and query.shape[-1] == value.shape[-1]
        and wide % 8 == 0
        and wide <= WIDEST
        and form.cap is None
        and dense
        and even
        and not shifted
        and form.all_see(query.shape[-2], key.shape[-2])
    )


def attend(form: Form, query, key, value, *masks):
    """Returns (result, sums) as ``plain.attend``."""
    if not takes(form, query, key, value, masks):
        return blocks.attend(form, query, key, value, *masks)
    fwd = need(f"{_MODULE}:_dot_product_attention_fwd_p_wrapper", _FEATURE)
    arrays, options = _arguments(form, query, key, value, masks)
    out, sums = fwd.bind(*arrays, **options, is_training=True)
    return _of_seen(form, query, key, masks, _turned(out)), sums


def backward(form: Form, query, key, value, masks, out, sums, cotangent, active):
    """Returns cotangents as ``blocks.backward``."""
    if not takes(form, query, key, value, masks, active):
        return blocks.backward(form, query, key, value, masks, out, sums, cotangent, active)
    bwd = need(f"{_MODULE}:_dot_product_attention_bwd_p_wrapper", _FEATURE)
    arrays, options = _arguments(form, query, key, value, masks)
    cotangent = _of_seen(form, query, key, masks, cotangent)
    of = bwd.bind(*arrays, sums, _turned(out), _turned(cotangent), **options)
    return *map(_turned, of[:3]), None


def _of_seen(form: Form, query, key, masks, rows):
    """Sets rows that see nothing to zero, of which cuDNN makes the mean of all values."""
    for mask in masks:
        if mask.dtype == bool:
            seen = plain.seen(form, query.shape[-2], key.shape[-2])
            sees = (mask if seen is None else mask & seen).any(-1, keepdims=True)
            rows = jnp.where(sees, rows, 0)
    return rows


def _turned(x: jax.Array) -> Any:
    """Exchanges heads and length. Models make queries of [batch, length, heads, width] and turn
    them; the kernel takes either, so what is turned twice is not moved at all.
    """
    return x.swapaxes(1, 2)


def _arguments(form: Form, query, key, value, masks) -> tuple[list[Any], dict[str, Any]]:
    kinds = need(f"{_MODULE}:MaskType", _FEATURE)
    layouts = need(f"{_MODULE}:AttentionLayout", _FEATURE)
    lowest = need(f"{_MODULE}:get_large_negative_number", _FEATURE)
    none = jnp.zeros(0, query.dtype)
    bias = none
    for mask in masks:
        low = jnp.asarray(lowest(query.dtype), query.dtype)
        if mask.dtype == bool:
            bias = jnp.where(mask, 0, low)
        else:  # a large number in all of a row would absorb the logarithm of its sum
            mask = jnp.maximum(mask, low)
            bias = jnp.maximum(mask - mask.max(-1, keepdims=True), low)
        bias = jnp.broadcast_to(bias, (*mask.shape[:2], query.shape[-2], key.shape[-2]))
        bias = bias.astype(query.dtype)
    options = {
        "scale": form.scale,
        "seed": 42,
        "dropout_rate": 0.0,
        "variadic_args": (bool(masks), False),
        "mask_type": kinds.CAUSAL if form.causal else kinds.NO_MASK,
        "layout": layouts.BTNH.value,
        "sliding_window_length": form.window,
    }
    call = need(f"{_MODULE}:_dot_product_attention_fwd", _FEATURE)
    if "score_mod" in inspect.signature(call).parameters:  # from JAX 0.12 on
        options["score_mod"] = None
    return [*map(_turned, (query, key, value)), bias, *[none] * 6], options
