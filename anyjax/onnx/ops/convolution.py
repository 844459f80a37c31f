"""Convolutions, each one ``conv_general_dilated``, and their kin."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics.convolution import conv_general_dilated, transposed_kernel
from anyjax.numerics.regions import deform_conv
from anyjax.onnx.core.schema import Static, lowers
from anyjax.stablehlo.core.static_values import sizes


def padding(auto_pad, pads, rank):
    """Returns the pads as JAX takes them: a name, or a pair for each dimension."""
    if auto_pad not in ("NOTSET", ""):
        return {"SAME_UPPER": "SAME"}.get(auto_pad, auto_pad)
    pads = pads or (0,) * 2 * rank
    return list(zip(pads[:rank], pads[rank:]))


def with_bias(y, B):
    return y if B is None else y + lax.expand_dims(B, range(1, y.ndim - 1))


@lowers("Conv")
def conv(X, W, B, auto_pad, dilations, group, kernel_shape, pads, strides):
    rank = W.ndim - 2
    out = conv_general_dilated(
        X,
        W,
        strides or (1,) * rank,
        padding(auto_pad, pads, rank),
        rhs_dilation=dilations,
        feature_group_count=group,
    )
    return with_bias(out, B)


def transposed_pads(shape, auto_pad, pads, strides, reach, output_padding, output_shape):
    """Returns the pads of the convolution of the dilated input.

    Where the size of the result is given, by ``output_shape`` or by SAME, it decides; what is cut
    off is halved, and its odd element is at the end for SAME_UPPER, else at the start.
    """
    rank = len(shape)
    full = [s * (n - 1) + o + r + 1 for s, n, o, r in zip(strides, shape, output_padding, reach)]
    if output_shape is not None:
        output_shape = output_shape[-rank:]
    elif auto_pad.startswith("SAME"):
        output_shape = [s * n for s, n in zip(strides, shape)]
    else:
        ends = padding("NOTSET", None if auto_pad == "VALID" else pads, rank)
        cut = zip(reach, ends, output_padding)
        return [(r - low, r - high + o) for r, (low, high), o in cut]
    cut = [max(n - m, 0) for n, m in zip(full, output_shape)]
    lows = [c // 2 if auto_pad == "SAME_UPPER" else c - c // 2 for c in cut]
    ends = zip(lows, reach, full, output_shape, output_padding)
    return [(r - low, m - n + o + r + low) for low, r, n, m, o in ends]


@lowers("ConvTranspose")
def conv_transpose(
    X, W, B, auto_pad, dilations, group, kernel_shape, output_padding, output_shape, pads, strides
):
    rank = W.ndim - 2
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    reach = [d * (k - 1) for d, k in zip(dilations, W.shape[2:])]
    ends = output_padding or (0,) * rank, output_shape
    out = conv_general_dilated(
        X,
        transposed_kernel(W, group),
        (1,) * rank,
        transposed_pads(X.shape[2:], auto_pad, pads, strides, reach, *ends),
        lhs_dilation=strides,
        rhs_dilation=dilations,
        feature_group_count=group,
    )
    return with_bias(out, B)


@lowers("DeformConv")
def deform(X, W, offset, B, mask, dilations, group, kernel_shape, offset_group, pads, strides):
    if W.ndim != 4:
        raise Unsupported(
            f"DeformConv over {W.ndim - 2} dimensions",
            why="only images are gathered at offsets, as in onnxruntime",
            do="reshape its input to [N, C, height, width]",
        )
    x, w, moved = (v.astype(jnp.promote_types(v.dtype, "float32")) for v in (X, W, offset))
    starts = [-p for p in (pads or (0, 0))[:2]]
    how = starts, strides or (1, 1), dilations or (1, 1), group, offset_group
    return with_bias(deform_conv(x, w, moved, mask, *how).astype(X.dtype), B)


@lowers("Col2Im")
def col2im(input, image_shape: Static, block_shape: Static, dilations, pads, strides):
    """Adds the columns of each place of a block, spread over the padded image."""
    image, block = sizes(image_shape), sizes(block_shape)
    rank = len(image)
    dilations, strides = dilations or (1,) * rank, strides or (1,) * rank
    ends = padding("NOTSET", pads, rank)
    counts = [
        (n + low + high - d * (k - 1) - 1) // s + 1
        for n, (low, high), d, k, s in zip(image, ends, dilations, block, strides)
    ]
    columns = input.reshape(len(input), -1, math.prod(block), *counts)
    zero, total = jnp.zeros((), input.dtype), 0
    for i, place in enumerate(itertools.product(*map(range, block))):
        margins = [(0, 0, 0), (0, 0, 0)]
        every = zip(image, counts, ends, dilations, strides, place)
        for n, m, (low, _), d, s, at in every:
            start = at * d - low
            margins.append((start, n - start - (m - 1) * s - 1, s - 1))
        total = total + lax.pad(columns[:, :, i], zero, margins)
    return total


@lowers("CausalConvWithState")
def causal_conv(input, weight, bias, past_state, activation):
    """Returns the depthwise convolution of the past and the input, and the last places."""
    count = weight.shape[2] - 1
    if past_state is None:
        past_state = jnp.zeros((*input.shape[:2], count), input.dtype)
    x = jnp.concatenate([past_state, input], 2)
    out = conv_general_dilated(x, weight, (1,), "VALID", feature_group_count=x.shape[1])
    out = with_bias(out, bias)
    out = out if activation == "none" else jax.nn.silu(out)
    return out, x[:, :, x.shape[2] - count :]
