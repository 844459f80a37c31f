"""Convolutions, each one ``conv_general_dilated`` in torch's layout."""

from jax import lax

from anyjax.numerics.convolution import conv_general_dilated, transposed_kernel
from anyjax.torch.core import current_trace
from anyjax.torch.core.schema import aten, lowers


def spread(value, rank: int) -> list[int]:
    """torch takes one number for all dimensions."""
    return list(value) * rank if len(value) == 1 else list(value)


def convolve(input, weight, bias, groups, **windows):
    """``lax``'s convolution, bias added; input without a batch dimension gets one."""
    rank = weight.ndim - 2
    single = input.ndim == rank + 1
    out = conv_general_dilated(
        input[None] if single else input,
        weight,
        dimension_numbers=lax.ConvDimensionNumbers(*[tuple(range(rank + 2))] * 3),
        feature_group_count=groups,
        precision=current_trace.trace().precision.convolutions if weight.itemsize > 2 else None,
        **windows,
    )
    out = out if bias is None else out + lax.expand_dims(bias, range(1, rank + 1))
    return out[0] if single else out


def conv(input, weight, bias, stride, padding, dilation, groups):
    """``padding`` may be "same", which puts the odd element at the end, or "valid"."""
    rank = weight.ndim - 2
    dilation = spread(dilation, rank)
    if isinstance(padding, str):
        total = [
            d * (k - 1) * (padding == "same")
            for d, k in zip(dilation, weight.shape[2:], strict=True)
        ]
        pads = [(t // 2, t - t // 2) for t in total]
    else:
        pads = [(p, p) for p in spread(padding, rank)]
    windows = {"window_strides": spread(stride, rank), "padding": pads, "rhs_dilation": dilation}
    return convolve(input, weight, bias, groups, **windows)


def conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation):
    """A convolution's gradient with respect to its input: it convolves the dilated input."""
    rank = weight.ndim - 2
    stride, padding, dilation = (spread(x, rank) for x in (stride, padding, dilation))
    weight = transposed_kernel(weight, groups)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    ends = zip(reach, padding, spread(output_padding, rank), strict=True)
    windows = {"window_strides": [1] * rank, "lhs_dilation": stride, "rhs_dilation": dilation}
    return convolve(
        input, weight, bias, groups, padding=[(r - p, r - p + o) for r, p, o in ends], **windows
    )


lowers(aten.conv1d, aten.conv2d, aten.conv3d, aten._convolution_mode)(conv)
lowers(
    aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input
)(conv_transpose)  # fmt: skip


@lowers(aten.convolution.default)
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        return conv_transpose(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv(input, weight, bias, stride, padding, dilation, groups)


@lowers(aten._convolution.default)
def _convolution(*arguments):
    """The last ones choose among torch's kernels."""
    return convolution(*arguments[:9])


@lowers(aten.conv_tbc)
def conv_tbc(self, weight, bias, pad):
    """Time, batch, channel; the weight is width, in, out."""
    dims = lax.conv_dimension_numbers(self.shape, weight.shape, ("WNC", "WIO", "WNC"))
    return conv_general_dilated(self, weight, (1,), [(pad, pad)], dimension_numbers=dims) + bias
