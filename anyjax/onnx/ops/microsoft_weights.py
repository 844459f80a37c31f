"""Weights of few bits in blocks that share a scale: products with them and rows of them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from anyjax.errors import Unsupported
from anyjax.onnx.core.schema import lowers

# The levels of 4 bits of bitsandbytes: floats of one sign, two exponent and one mantissa bit, and
# the quantiles of a normal distribution.
FP4 = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]  # fmt: skip


def unpacked(x, bits):
    """Returns the numbers in bytes, low bits first: the last axis is ``8 // bits`` times longer."""
    if bits not in (2, 4, 8):
        raise Unsupported(
            f"weights of {bits} bits",
            why="a byte holds numbers of 2, 4 or 8 bits",
            do="quantize the model to one of them",
        )
    x = x.astype(jnp.uint8)[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)
    return (x & np.uint8(2**bits - 1)).reshape(*x.shape[:-2], -1)


@lowers("com.microsoft::MatMulNBits")
def matmul_n_bits(
    A, B, scales, zero_points, g_idx, bias, K, N, accuracy_level, bits, block_size, weight_prepacked
):
    """``B[N, blocks, bytes]``: a column of the matrix is a row of blocks."""
    blocks = -(-K // block_size)
    numbers = unpacked(B.reshape(N, blocks, -1), bits).reshape(N, -1)[:, :K]
    scales = scales.reshape(N, blocks)
    if zero_points is None:
        zero = jnp.full((N, blocks), 2 ** (bits - 1))
    elif zero_points.dtype == np.uint8:
        zero = unpacked(zero_points.reshape(N, -1), bits)[:, :blocks]
    else:
        zero = zero_points.reshape(N, blocks)
    block = np.arange(K) // block_size if g_idx is None else g_idx
    matrix = (numbers.astype(A.dtype) - zero.astype(A.dtype)[:, block]) * scales[:, block]
    out = A @ matrix.T.astype(A.dtype)
    return out if bias is None else out + bias


@lowers("com.microsoft::MatMulBnb4")
def matmul_bnb4(A, B, absmax, K, N, block_size, quant_type, training_mode, transB):
    """``B`` is flat, its high bits first; blocks of all rows share no scale but their own."""
    levels = NF4 if quant_type == 1 else [*FP4, *(-x for x in FP4)]
    pairs = jnp.stack([B >> 4, B & 15], -1).reshape(-1)[: N * K]
    scale = absmax[np.arange(N * K) // block_size]
    matrix = jnp.asarray(levels, A.dtype)[pairs] * scale.astype(A.dtype)
    matrix = matrix.reshape(N, K)
    return A @ (matrix.T if transB else matrix.reshape(K, N))


@lowers("com.microsoft::GatherBlockQuantized")
def gather_block_quantized(
    data, indices, scales, zero_points, bits, block_size, gather_axis, quantize_axis
):
    """Bytes hold several numbers along the last axis, around their middle without zero points."""
    packed = data.dtype == np.uint8
    numbers = unpacked(data, bits) if packed else data
    axis = quantize_axis % data.ndim
    if zero_points is None:
        zero_points = jnp.full(scales.shape, 2 ** (bits - 1) if packed else 0, jnp.int32)
    elif packed:
        zero_points = unpacked(zero_points, bits)[..., : scales.shape[-1]]
    take = lambda x: jnp.take(x, indices, gather_axis % data.ndim, mode="wrap")
    block = np.arange(numbers.shape[axis]) // block_size
    spread = lambda x: jnp.take(x, block, axis)
    if axis == gather_axis % data.ndim:
        wide, zero, scale = numbers, spread(zero_points), spread(scales)
        return take((wide.astype(jnp.int32) - zero.astype(jnp.int32)).astype(scale.dtype) * scale)
    moved = axis + (jnp.ndim(indices) - 1 if gather_axis % data.ndim < axis else 0)
    spread = lambda x: jnp.take(x, block, moved)
    zero, scale = spread(take(zero_points)), spread(take(scales))
    return (take(numbers).astype(jnp.int32) - zero.astype(jnp.int32)).astype(scale.dtype) * scale
