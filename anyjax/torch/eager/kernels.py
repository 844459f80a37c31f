"""Operators that torch has for its own kernels alone, with what their gradients keep of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import torch

from anyjax.torch.core import strides
from anyjax.torch.eager.run import EagerRun
from anyjax.torch.eager.tensor import EagerTensor
from anyjax.torch.lowering.gradients import pulled
from anyjax.torch.ops.rnn import lstm_step, one_way
from anyjax.typing import PyTree

aten = torch.ops.aten
RUN = EagerRun()


def _lstm(has_biases: bool, reverse: bool, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Computes one direction of one layer, of which torch makes a kernel's call on CPUs."""
    x, weight, recurrent, bias, recurrent_bias, h, c = arrays
    biases = (bias, recurrent_bias) if has_biases else (None, None)
    weights = weight, recurrent, *biases, None
    (h, c), y = one_way(lstm_step, x, (h, c), weights, reverse, None)
    return y, h, c


def lstm(
    input: EagerTensor, weight0: EagerTensor, weight1: EagerTensor, weight2: EagerTensor,
    weight3: EagerTensor, hx_: EagerTensor, cx_: EagerTensor, reverse: bool, batch_sizes: list[int],
    mode: int, hidden_size: int, num_layers: int, has_biases: bool, *options: bool,
) -> Any:  # fmt: skip
    """Returns the output, the states and no workspace."""
    arrays = [x.array for x in (input, weight0, weight1, weight2, weight3)]
    states = [x.array.reshape(x.shape[-2:]) for x in (hx_, cx_)]
    y, h, c = _lstm(has_biases, reverse, *arrays, *states)
    out = y, h.reshape(hx_.shape), c.reshape(cx_.shape), jnp.zeros(0, jnp.uint8)
    return tuple(map(EagerTensor, out))


def lstm_backward(
    input: EagerTensor, weight1: EagerTensor, weight2: EagerTensor, weight3: EagerTensor,
    weight4: EagerTensor, hx_: EagerTensor, cx_tmp: EagerTensor, output: EagerTensor,
    hy_: EagerTensor, cy_: EagerTensor, grad_output: EagerTensor | None,
    grad_hy: EagerTensor | None, grad_cy: EagerTensor | None, reverse: bool, mode: int,
    hidden_size: int, num_layers: int, has_biases: bool, *options: PyTree,
) -> Any:  # fmt: skip
    """Returns the gradients by input, weights, biases and states."""
    operands = input, weight1, weight2, weight3, weight4, hx_, cx_tmp
    arrays = [x.array for x in operands]
    arrays[5:] = [x.reshape(x.shape[-2:]) for x in arrays[5:]]
    out, pull = jax.vjp(partial(_lstm, has_biases, reverse), *arrays)
    grads = zip((grad_output, grad_hy, grad_cy), out)
    pulled_back = pull(
        tuple(jnp.zeros_like(x) if g is None else g.array.reshape(x.shape) for g, x in grads)
    )
    return tuple(EagerTensor(g.reshape(x.shape)) for g, x in zip(pulled_back, operands))


def ctc_loss(
    log_probs: EagerTensor, targets: EagerTensor, input_lengths: PyTree, target_lengths: PyTree,
    blank: int = 0, zero_infinity: bool = False,
) -> tuple[EagerTensor, ...]:  # fmt: skip
    """Returns the loss of each row, and nothing for the gradient."""
    loss = aten.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, 0, zero_infinity)
    return loss, log_probs.new_zeros(0)


def bag_backward(
    grad: EagerTensor, indices: EagerTensor, offsets: EagerTensor, offset2bag: EagerTensor,
    bag_size: EagerTensor, maximum_indices: EagerTensor, num_weights: int,
    scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: EagerTensor | None,
    padding_idx: int = -1,
) -> EagerTensor:  # fmt: skip
    """Returns the gradient by the table of ``embedding_bag``."""
    weight = grad.new_zeros(num_weights, grad.shape[-1])
    if mode == 2:  # the largest: which one, the forward pass has noted
        counts = maximum_indices.ge(0).to(grad.dtype)
        return weight.scatter_add(0, maximum_indices.clamp(min=0), grad * counts)
    forward = _bag(grad, weight, indices, offsets, mode, per_sample_weights, padding_idx)
    forward["scale_grad_by_freq"] = scale_grad_by_freq
    return pulled(RUN, aten._embedding_bag.default, forward, ["weight"], grad)["weight"]


def bag_weights_backward(
    grad: EagerTensor, weight: EagerTensor, indices: EagerTensor, offsets: EagerTensor,
    offset2bag: EagerTensor, mode: int, padding_idx: int = -1,
) -> EagerTensor:  # fmt: skip
    """Returns the gradient by the factors of the rows of ``embedding_bag``."""
    factors = grad.new_zeros(indices.shape)  # it does not depend on them
    forward = _bag(grad, weight, indices, offsets, mode, factors, padding_idx)
    name = "per_sample_weights"
    return pulled(RUN, aten._embedding_bag.default, forward, [name], grad)[name]


def _bag(grad, weight, indices, offsets, mode, per_sample_weights, padding_idx) -> dict[str, Any]:
    forward = {"weight": weight, "indices": indices, "offsets": offsets, "mode": mode}
    forward |= {"per_sample_weights": per_sample_weights, "padding_idx": padding_idx}
    return forward | {"include_last_offset": offsets.numel() > grad.shape[0]}


def determinant(A: EagerTensor) -> tuple[EagerTensor, ...]:
    """Returns the determinant, and the factors as torch's gradient expects them."""
    return (aten.linalg_det(A), *strides.lu_factors(A, A.is_contiguous()))


def log_determinant(A: EagerTensor) -> tuple[EagerTensor, ...]:
    """Returns sign and logarithm of the determinant, and the factors."""
    return (*aten.linalg_slogdet(A), *strides.lu_factors(A, A.is_contiguous()))


SPECIAL: dict[Any, Callable[..., Any]] = {
    aten._efficientzerotensor.default: aten.zeros.default,  # of forward mode
    aten._ctc_loss.default: ctc_loss,
    aten._ctc_loss.Tensor: ctc_loss,
    aten._embedding_bag_backward.default: bag_backward,
    aten._embedding_bag_per_sample_weights_backward.default: bag_weights_backward,
    aten._linalg_det.default: determinant,
    aten._linalg_slogdet.default: log_determinant,
    aten.mkldnn_rnn_layer.default: lstm,
    aten.mkldnn_rnn_layer_backward.default: lstm_backward,
}
