"""Convolutions, each one ``conv_general_dilated`` in TensorFlow's layout."""

from __future__ import annotations

from functools import partial

import jax

from tojax.errors import Unsupported
from tojax.numerics.depthwise import conv_general_dilated
from tojax.stablehlo.core.static_values import sizes
from tojax.tensorflow.core.schema import Static, lowers

NO_PADS: list[int] = []


def spatial(layout) -> list[int]:
    """Which dimensions are neither the batch nor the channels.

    Raises:
      Unsupported: the channels lie in packs, as only cuDNN has them.
    """
    if "VECT" in layout:
        raise Unsupported(
            f"the layout {layout}",
            why="only TensorFlow's GPU kernels for inference know it",
            do="convert the model before it is optimised for a GPU",
        )
    return [i for i, name in enumerate(layout) if name not in "NC"]


def pads_of(padding, explicit, layout):
    """SAME, VALID, or a pair for each spatial dimension."""
    if padding != "EXPLICIT":
        return padding
    return [(explicit[2 * i], explicit[2 * i + 1]) for i in spatial(layout)]


def convolution(strides, padding, explicit, layout, dilations, groups=None):
    """``(input, filter) -> output``; the filter's shape tells the groups."""
    where = spatial(layout)
    kernel = "DHW"[-len(where) :] + "IO"

    def run(input, filter):
        channels = input.shape[layout.index("C")]
        return conv_general_dilated(
            input,
            filter,
            [strides[i] for i in where],
            pads_of(padding, explicit, layout),
            rhs_dilation=[dilations[i] for i in where] if dilations else None,
            dimension_numbers=(layout, kernel, layout),
            feature_group_count=channels // max(filter.shape[-2], 1) if groups is None else groups,
        )

    return run


def depthwise(*how):
    """``(input, filter) -> output``: every channel has filters of its own."""

    def run(input, filter):
        *window, channels, multiplier = filter.shape
        flat = filter.reshape(*window, 1, channels * multiplier)
        return convolution(*how, groups=channels)(input, flat)

    return run


def of_input(run, shape, filter, out_backprop):
    """The gradient of the input: what a transposed convolution computes."""
    like = jax.ShapeDtypeStruct(sizes(shape), out_backprop.dtype)
    return jax.linear_transpose(lambda x: run(x, filter), like)(out_backprop)[0]


def of_filter(run, input, shape, out_backprop):
    like = jax.ShapeDtypeStruct(sizes(shape), out_backprop.dtype)
    return jax.linear_transpose(partial(run, input), like)(out_backprop)[0]


@lowers("Conv2D")
def conv2d(input, filter, strides, padding, explicit_paddings, data_format, dilations):
    return convolution(strides, padding, explicit_paddings, data_format, dilations)(input, filter)


@lowers("Conv3D")
def conv3d(input, filter, strides, padding, data_format, dilations):
    return convolution(strides, padding, NO_PADS, data_format, dilations)(input, filter)


@lowers("DepthwiseConv2dNative")
def depthwise_conv2d(input, filter, strides, padding, explicit_paddings, data_format, dilations):
    return depthwise(strides, padding, explicit_paddings, data_format, dilations)(input, filter)


@lowers("Conv")
def conv(
    input, filter, strides, padding, explicit_paddings, data_format, dilations, batch_dims, groups
):
    """Any rank, and several batch dimensions."""
    rank = filter.ndim - 2
    layout = {"CHANNELS_LAST": f"N{'DHW'[-rank:]}C", "CHANNELS_FIRST": f"NC{'DHW'[-rank:]}"}
    batch = input.shape[:batch_dims]
    flat = input.reshape(-1, *input.shape[batch_dims:])
    run = convolution(strides, padding, explicit_paddings, layout[data_format], dilations, groups)
    out = run(flat, filter)
    return out.reshape(*batch, *out.shape[1:])


def whole(shape, filter, out_backprop, layout):
    """The input's shape; TensorFlow also takes its spatial part."""
    shape = sizes(shape)
    if len(shape) == len(layout):
        return shape
    inner = {"N": out_backprop.shape[0], "C": filter.shape[-2]}
    rest = iter(shape)
    return tuple(inner[x] if x in inner else next(rest) for x in layout)


@lowers("Conv2DBackpropInput")
def conv2d_of_input(
    input_sizes: Static, filter, out_backprop, strides, padding, explicit_paddings, data_format,
    dilations,
):  # fmt: skip
    run = convolution(strides, padding, explicit_paddings, data_format, dilations)
    return of_input(
        run, whole(input_sizes, filter, out_backprop, data_format), filter, out_backprop
    )


@lowers("Conv2DBackpropInputV2")
def conv2d_of_input_v2(
    input, filter, out_backprop, strides, padding, explicit_paddings, data_format, dilations
):
    run = convolution(strides, padding, explicit_paddings, data_format, dilations)
    return of_input(run, input.shape, filter, out_backprop)


@lowers("Conv2DBackpropFilter")
def conv2d_of_filter(
    input, filter_sizes: Static, out_backprop, strides, padding, explicit_paddings, data_format,
    dilations,
):  # fmt: skip
    run = convolution(strides, padding, explicit_paddings, data_format, dilations)
    return of_filter(run, input, filter_sizes, out_backprop)


@lowers("Conv2DBackpropFilterV2")
def conv2d_of_filter_v2(
    input, filter, out_backprop, strides, padding, explicit_paddings, data_format, dilations
):
    run = convolution(strides, padding, explicit_paddings, data_format, dilations)
    return of_filter(run, input, filter.shape, out_backprop)


@lowers("Conv3DBackpropInputV2")
def conv3d_of_input(
    input_sizes: Static, filter, out_backprop, strides, padding, data_format, dilations
):
    run = convolution(strides, padding, NO_PADS, data_format, dilations)
    return of_input(
        run, whole(input_sizes, filter, out_backprop, data_format), filter, out_backprop
    )


@lowers("Conv3DBackpropFilterV2")
def conv3d_of_filter(
    input, filter_sizes: Static, out_backprop, strides, padding, data_format, dilations
):
    run = convolution(strides, padding, NO_PADS, data_format, dilations)
    return of_filter(run, input, filter_sizes, out_backprop)


@lowers("DepthwiseConv2dNativeBackpropInput")
def depthwise_of_input(
    input_sizes: Static, filter, out_backprop, strides, padding, explicit_paddings, data_format,
    dilations,
):  # fmt: skip
    run = depthwise(strides, padding, explicit_paddings, data_format, dilations)
    return of_input(run, input_sizes, filter, out_backprop)


@lowers("DepthwiseConv2dNativeBackpropFilter")
def depthwise_of_filter(
    input, filter_sizes: Static, out_backprop, strides, padding, explicit_paddings, data_format,
    dilations,
):  # fmt: skip
    run = depthwise(strides, padding, explicit_paddings, data_format, dilations)
    return of_filter(run, input, filter_sizes, out_backprop)
