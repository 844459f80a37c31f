"""Convolutions, each one ``conv_general_dilated`` in TensorFlow's layout."""

from __future__ import annotations

from functools import partial

import jax

from anyjax.errors import Unsupported
from anyjax.numerics.convolution import conv_general_dilated
from anyjax.stablehlo.core.static_values import sizes
from anyjax.tensorflow.core.schema import Static, lowers

NO_PADS: list[int] = []


def spatial(layout) -> list[int]:
    """Returns the dimensions other than the batch and the channels.

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
    """Returns SAME, VALID, or a pair for each spatial dimension."""
    if padding != "EXPLICIT":
        return padding
    return [(explicit[2 * i], explicit[2 * i + 1]) for i in spatial(layout)]


def convolution(strides, padding, explicit, layout, dilations, groups=None):
    """Returns ``(input, filter) -> output``; the filter's shape tells the groups."""
    space = spatial(layout)
    kernel = "DHW"[-len(space) :] + "IO"

    def convolve(input, filter):
        channels = input.shape[layout.index("C")]
        return conv_general_dilated(
            input,
            filter,
            [strides[i] for i in space],
            pads_of(padding, explicit, layout),
            rhs_dilation=[dilations[i] for i in space] if dilations else None,
            dimension_numbers=(layout, kernel, layout),
            feature_group_count=channels // max(filter.shape[-2], 1) if groups is None else groups,
        )

    return convolve


def depthwise(*how):
    """Returns ``(input, filter) -> output``; every channel has its own filters."""

    def convolve(input, filter):
        *window, channels, multiplier = filter.shape
        flat = filter.reshape(*window, 1, channels * multiplier)
        return convolution(*how, groups=channels)(input, flat)

    return convolve


def input_grad(convolve, shape, filter, out_backprop):
    """Returns the gradient for the input: a transposed convolution."""
    like = jax.ShapeDtypeStruct(sizes(shape), out_backprop.dtype)
    return jax.linear_transpose(lambda x: convolve(x, filter), like)(out_backprop)[0]


def filter_grad(convolve, input, shape, out_backprop):
    """Returns the gradient for the filter."""
    like = jax.ShapeDtypeStruct(sizes(shape), out_backprop.dtype)
    return jax.linear_transpose(partial(convolve, input), like)(out_backprop)[0]


@lowers("Conv")
def conv(
    input, filter, strides, padding, explicit_paddings, data_format, dilations, batch_dims, groups
):
    """Any rank, and several batch dimensions."""
    rank = filter.ndim - 2
    layout = {"CHANNELS_LAST": f"N{'DHW'[-rank:]}C", "CHANNELS_FIRST": f"NC{'DHW'[-rank:]}"}
    batch = input.shape[:batch_dims]
    flat = input.reshape(-1, *input.shape[batch_dims:])
    convolve = convolution(
        strides, padding, explicit_paddings, layout[data_format], dilations, groups
    )
    out = convolve(flat, filter)
    return out.reshape(*batch, *out.shape[1:])


def input_shape(shape, filter, out_backprop, layout):
    """Returns the input's shape; TensorFlow also accepts its spatial part alone."""
    shape = sizes(shape)
    if len(shape) == len(layout):
        return shape
    sizes_of = {"N": out_backprop.shape[0], "C": filter.shape[-2]}
    space = iter(shape)
    return tuple(sizes_of[x] if x in sizes_of else next(space) for x in layout)


def volumes(strides, padding, layout, dilations):
    return convolution(strides, padding, NO_PADS, layout, dilations)


def forward(form):
    return lambda input, filter, /, *how: form(*how)(input, filter)


def of_input(form):
    def lowering(input_sizes: Static, filter, out_backprop, /, *how):
        shape = input_shape(input_sizes, filter, out_backprop, layout=how[-2])
        return input_grad(form(*how), shape, filter, out_backprop)

    return lowering


def of_filter(form):
    def lowering(input, filter_sizes: Static, out_backprop, /, *how):
        return filter_grad(form(*how), input, filter_sizes, out_backprop)

    return lowering


for _name, _version, _form in (
    ("Conv2D", "", convolution),
    ("Conv3D", "V2", volumes),
    ("DepthwiseConv2dNative", "", depthwise),
):
    lowers(_name)(forward(_form))
    lowers(f"{_name}BackpropInput{_version}")(of_input(_form))
    lowers(f"{_name}BackpropFilter{_version}")(of_filter(_form))


@lowers("Conv2DBackpropInputV2")
def conv2d_of_input_v2(input, filter, out_backprop, /, *how):
    return input_grad(convolution(*how), input.shape, filter, out_backprop)


@lowers("Conv2DBackpropFilterV2")
def conv2d_of_filter_v2(input, filter, out_backprop, /, *how):
    return filter_grad(convolution(*how), input, filter.shape, out_backprop)
