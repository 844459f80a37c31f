"""Pooling, and windows as arrays."""

from anyjax.flax.codegen.python.indexing import FULL, Index
from anyjax.flax.codegen.python.templates import Call, writes


def spread(call: Call, name: str, default: list[int]) -> tuple[int, ...]:
    """Returns an argument for each dimension of the picture."""
    values, rank = call.args.get(name) or default, call.out.ndim - 2
    values = values if isinstance(values, list) else [values]
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def edges(call: Call, window: tuple, stride: tuple) -> list:
    """Returns the padding, more at the end where the last window needs it."""
    pads = spread(call, "padding", [0])
    if not call.args.get("ceil_mode"):
        return [(p, p) for p in pads]
    padding = []
    for i, pad in enumerate(pads):
        source, target = call.fake("self").shape[i + 2], call.out.shape[i + 2]
        need = (target - 1) * stride[i] + window[i] - source - pad
        if isinstance(need, int):
            padding.append((pad, max(need, 0)))
        elif stride[i] + pad > window[i]:  # whether there is a last window depends on the size
            raise NotImplementedError("ceil_mode with wide steps and a size that may vary")
        else:
            padding.append((pad, call.write("max(need, 0)", need=call.size(need))))
    return padding


def moving(call: Call):
    """Returns (window, stride, dilation)."""
    window = spread(call, "kernel_size", [])
    return window, spread(call, "stride", list(window)), spread(call, "dilation", [1])


@writes("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(call: Call):
    window, stride, dilation = moving(call)
    if set(dilation) != {1}:
        raise NotImplementedError("max pooling with dilation, of which JAX has no gradient")
    pads = edges(call, window, stride)
    return pooled(call, "max", window, stride, pads)


@writes("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(call: Call):
    """Writes an average; windows that end past the padding count only places inside of it."""
    window, stride, _ = moving(call)
    counted = call.args.get("count_include_pad", True)
    padded = any(spread(call, "padding", [0]))
    if call.args.get("ceil_mode") and counted and padded:
        raise NotImplementedError("means with ceil_mode that count the padding")
    counts_all = not counted or (call.args.get("ceil_mode") and not padded)
    pads = edges(call, window, stride)
    return pooled(call, "avg", window, stride, pads, ", count_include_pad=False" * bool(counts_all))


def pooled(call: Call, name: str, window, stride, pads, more: str = ""):
    around = any(p != (0, 0) for p in pads)
    text = f"nnx.{name}_pool(self, window, strides=stride{', padding=pads' * around}"
    text += more * around + ")"
    return call.write(text, window=window, stride=stride, pads=pads)


@writes("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive(call: Call):
    """Returns the mean of everything, or windows of one size."""
    if set(call.output_size) == {1}:
        axes = tuple(range(1, len(call.output_size) + 1))
        return call.write("self.mean(axes, keepdims=True)", axes=axes if len(axes) > 1 else axes[0])
    source, target = call.fake("self").shape[2:], call.out.shape[2:]
    if not all(isinstance(n, int) for n in (*source, *target)):
        raise NotImplementedError("adaptive pooling of a size that may vary")
    if any(n % m for n, m in zip(source, target)):
        raise NotImplementedError("adaptive pooling with windows of several sizes")
    window = tuple(n // m for n, m in zip(source, target))
    if set(window) == {1}:
        return call.self
    return call.write("nnx.avg_pool(self, window, strides=window)", window=window)


@writes("unfold")
def unfold(call: Call):
    """Writes windows along one dimension; the places in a window are the last dimension."""
    rank = call.fake("self").ndim
    dim = call.dimension % rank
    count, step = call.size(call.out.shape[dim]), call.step
    first = call.write("jnp.arange(count)" + " * step" * (step != 1), count=count)
    at = call.write("first[:, None] + jnp.arange(size)", first=first)
    entries = [FULL] * rank
    entries[dim] = at
    windows = Index(call.self, entries).expression()
    if dim == rank - 1:
        return windows
    return call.write("jnp.moveaxis(x, at, -1)", x=windows, at=dim + 1)


@writes("im2col")
def im2col(call: Call):
    """Writes windows as columns of channel, row and column, in this order."""
    window, stride, dilation = (
        tuple(call.args[name]) for name in ("kernel_size", "stride", "dilation")
    )
    text = "jax.lax.conv_general_dilated_patches(self, window, stride, pads"
    text += ", rhs_dilation=dilation" * (set(dilation) != {1})
    text += ", precision=jax.lax.Precision.HIGHEST)"
    patches = call.write(text, window=window, stride=stride, dilation=dilation,
                       pads=[(p, p) for p in call.padding])  # fmt: skip
    shape = [call.size(call.out.shape[0]), call.size(call.out.shape[1]), -1]
    return call.write("x.reshape(*shape)", x=patches, shape=shape)
