"""Pooling: ``reduce_window`` in TensorFlow's layout."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.pooling import lowest, max_places, window_counts
from anyjax.stablehlo.core.static_values import sizes
from anyjax.tensorflow.core.schema import Static, lowers
from anyjax.tensorflow.ops.conv import spatial


def numbers(values) -> tuple[int, ...]:
    return tuple(int(x) for x in values)


def max_windows(ksize, strides, padding, *explicit_and_layout):
    """Returns ``input -> output``; of equal elements the first has the gradient.

    TensorFlow's kernel for three dimensions on CPUs gives each of them the whole gradient.
    """
    *explicit, layout = explicit_and_layout
    spatial(layout)
    if padding == "EXPLICIT":
        padding = list(zip(explicit[0][::2], explicit[0][1::2]))

    def pool(input):
        window = numbers(ksize), numbers(strides), padding
        return lax.reduce_window(input, lowest(input.dtype), lax.max, *window)

    return pool


def mean_windows(ksize, strides, padding, layout):
    """Returns ``value -> output``; padding does not count."""
    spatial(layout)
    axes = [i for i, k in enumerate(ksize) if k > 1 or strides[i] > 1]
    pooled = lambda xs: [xs[i] for i in axes]

    def pool(value):
        wide = value.astype(jnp.promote_types(value.dtype, np.float32))
        pads = [(0, 0)] * value.ndim
        window = pooled(ksize), pooled(strides), padding
        for i, pad in zip(axes, lax.padtype_to_pads(pooled(value.shape), *window)):
            pads[i] = pad
        add = lambda x: lax.reduce_window(x, np.array(0, x.dtype), lax.add, ksize, strides, pads)
        total = add(wide)
        if padding == "VALID" or all(isinstance(n, int) for n in pooled(value.shape)):
            count = window_counts(value, total, ksize, strides, pads)
        else:  # sizes are symbols
            count = add(jnp.ones([n if i in axes else 1 for i, n in enumerate(value.shape)]))
        return (total / count).astype(value.dtype)

    return pool


@lowers("MaxPool", "MaxPool3D")
def max_pool(input, /, *how):
    return max_windows(*how)(input)


@lowers("MaxPoolV2")
def max_pool_v2(input, ksize: Static, strides: Static, /, *how):
    return max_windows(ksize, strides, *how)(input)


@lowers("MaxPoolGrad", "MaxPool3DGrad")
def max_pool_grad(orig_input, orig_output, grad, /, *how):
    return jax.vjp(max_windows(*how), orig_input)[1](grad)[0]


@lowers("MaxPoolGradV2")
def max_pool_grad_v2(orig_input, orig_output, grad, ksize: Static, strides: Static, /, *how):
    return max_pool_grad(orig_input, orig_output, grad, ksize, strides, *how)


@lowers("MaxPoolGradGrad", "MaxPool3DGradGrad")
def max_pool_grad_grad(orig_input, orig_output, grad, /, *how):
    """The elements of ``grad`` where the input has its maxima."""
    return jax.jvp(max_windows(*how), (orig_input,), (grad,))[1]


@lowers("MaxPoolGradGradV2")
def max_pool_grad_grad_v2(orig_input, orig_output, grad, ksize: Static, strides: Static, /, *how):
    return max_pool_grad_grad(orig_input, orig_output, grad, ksize, strides, *how)


@lowers("AvgPool", "AvgPool3D")
def avg_pool(value, /, *how):
    return mean_windows(*how)(value)


@lowers("AvgPoolGrad", "AvgPool3DGrad")
def avg_pool_grad(orig_input_shape: Static, grad, /, *how):
    like = jax.ShapeDtypeStruct(sizes(orig_input_shape), grad.dtype)
    return jax.linear_transpose(mean_windows(*how), like)(grad)[0]


def with_batch(places, shape):
    """Turns places in one image into places in the flat batch."""
    start = lax.iota(places.dtype, shape[0]) * math.prod(shape[1:])
    return places + start[:, None, None, None]


@lowers("MaxPoolWithArgmax")
def max_pool_with_argmax(input, ksize, strides, Targmax, padding, include_batch_in_index):
    window = {"window_dimensions": ksize, "window_strides": strides, "padding": padding}
    places = max_places(input, input.ndim - 1, window, nans=False).astype(Targmax)
    places = with_batch(places, input.shape) if include_batch_in_index else places
    return max_windows(ksize, strides, padding, "NHWC")(input), places


@lowers("MaxPoolGradWithArgmax")
def max_pool_grad_with_argmax(input, grad, argmax, ksize, strides, padding, include_batch_in_index):
    """Adds every element of ``grad`` where its maximum came from."""
    argmax = argmax if include_batch_in_index else with_batch(argmax, input.shape)
    flat = jnp.zeros(input.size, grad.dtype).at[argmax.ravel()].add(grad.ravel())
    return flat.reshape(input.shape)
