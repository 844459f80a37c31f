"""Gradients that torch has kernels for: ``NAME_backward`` by JAX's derivative of ``NAME``."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import torch

from tojax.table import REQUIRED
from tojax.torch.core import current_trace
from tojax.torch.core.call import Call, call_of
from tojax.torch.core.precision import precision_of
from tojax.torch.core.tensor import differentiable
from tojax.torch.eager.tensor import EagerTensor

aten = torch.ops.aten
GRADS = ("grad_output", "grad", "grad_out")
SIZES = "output_size"  # of adaptive pooling, whose gradient is told by its shape


@lru_cache(None)
def of(op: Any) -> Callable[..., Any] | None:
    """Returns a function that computes a gradient; None where there is no such operator."""
    if op in SPECIAL:
        return SPECIAL[op]
    name = op._schema.name.removeprefix("aten::")
    packet = getattr(aten, name.removesuffix("_backward"), None)
    if not name.endswith("_backward") or packet is None:
        return None
    for overload in packet.overloads():
        call = call_of(getattr(packet, overload))
        if call.row is not None:
            return partial(_by_name, op, call)
    return None


def _by_name(op: Any, call: Call, *args: Any, **kwargs: Any) -> Any:
    """Returns gradients by the arguments that an operator and its gradient have in common."""
    bound = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}
    bound |= dict(zip((a.name for a in op._schema.arguments), args)) | kwargs
    grad = next(bound[name] for name in GRADS if name in bound)
    forward: dict[str, Any] = {}
    for param in call.params:
        if param.name in bound:
            forward[param.name] = bound[param.name]
        elif param.name == SIZES:
            forward[param.name] = list(grad.shape[-len(grad.shape[2:]) :])
        elif param.default is not REQUIRED:
            forward[param.name] = param.default
    is_float = lambda x: isinstance(x, EagerTensor) and differentiable(x.dtype)
    names = [name for name, x in forward.items() if is_float(x)]
    mask = bound.get("output_mask", [True] * len(names))
    names = names[: len(op._schema.returns)]
    found = pulled(call, forward, [n for n, m in zip(names, mask) if m], grad)
    out = [found.get(name) for name in names]
    return out[0] if len(op._schema.returns) == 1 else tuple(out)


def pulled(call: Call, forward: dict[str, Any], names: list[str], *grads: Any) -> dict[str, Any]:
    """Returns the gradients of an operator's first results by these arguments."""

    def function(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        tensors = {n: EagerTensor(x, forward[n].dtype) for n, x in zip(names, arrays)}
        values, _ = call.bind((), forward | tensors)
        assert call.row is not None
        out = call.row.lowering(*values)
        return tuple(out)[: len(grads)] if isinstance(out, (tuple, list)) else (out,)

    with current_trace.entered(_Running()):
        out, pull = jax.vjp(function, *(forward[n].array for n in names))
    cotangents = tuple(
        jnp.zeros_like(x) if g is None else g.array.astype(x.dtype) for g, x in zip(grads, out)
    )
    return {n: EagerTensor(g, forward[n].dtype) for n, g in zip(names, pull(cotangents))}


class _Running:
    precision = property(lambda self: precision_of("torch"))


def convolution(
    grad_output: EagerTensor, input: EagerTensor, weight: EagerTensor, bias_sizes: list[int] | None,
    stride: list[int], padding: list[int], dilation: list[int], transposed: bool,
    output_padding: list[int], groups: int, output_mask: list[bool],
) -> Any:  # fmt: skip
    """Returns the gradients by input, weight and bias, those that the mask asks for."""
    forward = dict(input=input, weight=weight, bias=None, stride=stride, padding=padding)
    forward |= dict(dilation=dilation, transposed=transposed, output_padding=output_padding)
    forward["groups"] = groups
    names = [n for n, m in zip(("input", "weight"), output_mask) if m]
    found = pulled(call_of(aten.convolution.default), forward, names, grad_output)
    bias = None
    if output_mask[2]:
        bias = grad_output.sum([i for i in range(grad_output.dim()) if i != 1])
    return found.get("input"), found.get("weight"), bias


def _lstm(has_biases: bool, reverse: bool, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Computes one direction of one layer, of which torch makes a kernel's call on CPUs."""
    x, weight, recurrent, bias, recurrent_bias, h, c = arrays
    biases = [bias, recurrent_bias] if has_biases else []
    lstm = call_of(aten.lstm.input)
    assert lstm.row is not None
    x = jnp.flip(x, 0) if reverse else x
    states, weights = [h, c], [weight, recurrent, *biases]
    options = has_biases, 1, 0.0, False, False, False
    y, h, c = lstm.row.lowering(None, x, states, weights, *options)
    return jnp.flip(y, 0) if reverse else y, h, c


def lstm(
    input: EagerTensor, weight0: EagerTensor, weight1: EagerTensor, weight2: EagerTensor,
    weight3: EagerTensor, hx_: EagerTensor, cx_: EagerTensor, reverse: bool, batch_sizes: list[int],
    mode: int, hidden_size: int, num_layers: int, has_biases: bool, *options: bool,
) -> Any:  # fmt: skip
    """Returns the output, the states and no workspace."""
    operands = input, weight0, weight1, weight2, weight3, hx_[None], cx_[None]
    y, h, c = _lstm(has_biases, reverse, *(x.array for x in operands))
    out = (y, h.reshape(hx_.shape), c.reshape(cx_.shape), jnp.zeros(0, jnp.uint8))
    return tuple(EagerTensor(x) for x in out)


def lstm_backward(
    input: EagerTensor, weight1: EagerTensor, weight2: EagerTensor, weight3: EagerTensor,
    weight4: EagerTensor, hx_: EagerTensor, cx_tmp: EagerTensor, output: EagerTensor,
    hy_: EagerTensor, cy_: EagerTensor, grad_output: EagerTensor | None,
    grad_hy: EagerTensor | None, grad_cy: EagerTensor | None, reverse: bool, mode: int,
    hidden_size: int, num_layers: int, has_biases: bool, *options: Any,
) -> Any:  # fmt: skip
    """Returns the gradients by input, weights, biases and states."""
    operands = input, weight1, weight2, weight3, weight4, hx_, cx_tmp
    arrays = [x.array for x in operands]
    arrays[5:] = [x.reshape(1, *x.shape[-2:]) for x in arrays[5:]]
    out, pull = jax.vjp(partial(_lstm, has_biases, reverse), *arrays)
    grads = zip((grad_output, grad_hy, grad_cy), out)
    found = pull(tuple(jnp.zeros_like(x) if g is None else g.array.reshape(x.shape)
                       for g, x in grads))
    return tuple(EagerTensor(g.reshape(x.shape)) for g, x in zip(found, operands))


SPECIAL: dict[Any, Callable[..., Any]] = {
    aten.convolution_backward.default: convolution,
    aten.mkldnn_rnn_layer.default: lstm,
    aten.mkldnn_rnn_layer_backward.default: lstm_backward,
}
