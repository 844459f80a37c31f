"""Operations whose sizes are operands, in modules with unknown sizes."""

from __future__ import annotations

from jax import lax

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.schema import lowers
from anyjax.stablehlo.core.static_values import Known, Static, is_known, known, sizes
from anyjax.stablehlo.ops.convolution import convolution
from anyjax.stablehlo.ops.gather import gather


@lowers("stablehlo.dynamic_reshape")
def dynamic_reshape(result, operand, output_shape: Static):
    return lax.reshape(operand, sizes(output_shape))


@lowers("stablehlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(result, operand, shape: Static, at, expanding, nonexpanding, /):
    return lax.broadcast_in_dim(operand, sizes(shape), at)


@lowers("stablehlo.dynamic_iota")
def dynamic_iota(result, output_shape: Static, iota_dimension):
    return lax.broadcasted_iota(result.dtype, sizes(output_shape), iota_dimension)


@lowers("stablehlo.dynamic_pad")
def dynamic_pad(result, operand, value, low: Static, high: Static, interior: Static, /):
    return lax.pad(operand, value, list(zip(sizes(low), sizes(high), sizes(interior))))


@lowers("stablehlo.real_dynamic_slice")
def real_dynamic_slice(
    result, operand, start: Known, limit: Known, strides: Static, added: Known = None, /
):
    """Bounds may be traced where their distance is known: ``added``, as limit = start + added."""
    if is_known(added) and not is_known(start) and all(x == 1 for x in strides):
        return lax.dynamic_slice(operand, list(start), sizes(added))
    start, limit = known(start, "where a slice starts"), known(limit, "where a slice ends")
    return lax.slice(operand, sizes(start), sizes(limit), sizes(strides))


@lowers("stablehlo.dynamic_gather")
def dynamic_gather(operand, indices, slice_sizes: Static, numbers, /):
    return gather(operand, indices, numbers, sizes(slice_sizes))


@lowers("stablehlo.dynamic_conv")
def dynamic_conv(
    result, lhs, rhs, padding: Static, numbers, groups, batch_groups, strides, lhs_dilation,
    rhs_dilation, reversal, precision, /,
):  # fmt: skip
    return convolution(
        result, lhs, rhs, numbers, groups, batch_groups, strides, padding, lhs_dilation,
        rhs_dilation, reversal, precision,
    )  # fmt: skip


@lowers("stablehlo.set_dimension_size")
def set_dimension_size(operand, size: Static, dimension):
    if int(size) != operand.shape[dimension]:
        raise Unsupported(
            "set_dimension_size to another size",
            why="JAX's arrays have no part that does not count",
            do="export the module with this size as it is",
        )
    return operand
