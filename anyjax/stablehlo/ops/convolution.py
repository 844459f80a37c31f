"""Convolutions."""

from __future__ import annotations

from jax import lax

from anyjax.numerics.convolution import conv_general_dilated
from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.ops.dot import precision_of, sum_type
from anyjax.stablehlo.ops.window import pairs


@lowers("stablehlo.convolution")
def convolution(
    result, lhs, rhs, numbers, groups, batch_groups, strides, padding, lhs_dilation, rhs_dilation,
    reversal, precision, /,
):  # fmt: skip
    spatial = list(numbers.kernel_spatial_dimensions)
    ones = [1] * len(spatial)
    return conv_general_dilated(
        lhs,
        lax.rev(rhs, [axis for axis, on in zip(spatial, reversal or ()) if on]),
        strides or ones,
        pairs(padding, len(spatial)),
        lhs_dilation or ones,
        rhs_dilation or ones,
        lax.ConvDimensionNumbers(*layouts(numbers)),
        groups,
        batch_groups,
        precision_of(precision),
        sum_type(result, lhs),
    )


def layouts(numbers):
    """Returns the axes of batch (or output features), features and space of the three arrays."""
    return (
        (
            numbers.input_batch_dimension,
            numbers.input_feature_dimension,
            *numbers.input_spatial_dimensions,
        ),
        (
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ),
        (
            numbers.output_batch_dimension,
            numbers.output_feature_dimension,
            *numbers.output_spatial_dimensions,
        ),
    )
