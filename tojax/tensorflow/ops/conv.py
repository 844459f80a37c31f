"""Convolutions."""

from __future__ import annotations

from jax import lax

from tojax.tensorflow.core.schema import lowers


def padding_of(padding, explicit, data_format):
    """SAME, VALID, or a pair for each spatial axis."""
    if padding != "EXPLICIT":
        return padding
    pairs = list(zip(explicit[::2], explicit[1::2]))
    return [pairs[i] for i in spatial(data_format)]


def spatial(data_format) -> list[int]:
    return [i for i, name in enumerate(data_format) if name not in "NC"]


@lowers("Conv2D")
def conv2d(input, filter, strides, padding, explicit_paddings, data_format, dilations):
    where = spatial(data_format)
    return lax.conv_general_dilated(
        input,
        filter,
        [strides[i] for i in where],
        padding_of(padding, explicit_paddings, data_format),
        rhs_dilation=[dilations[i] for i in where],
        dimension_numbers=(data_format, "HWIO", data_format),
        feature_group_count=input.shape[data_format.index("C")] // filter.shape[2],
    )
