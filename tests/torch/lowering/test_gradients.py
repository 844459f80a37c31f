"""Gradients that torch has kernels of its own for."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from anyjax.torch import interop
from anyjax.torch.lowering import gradients
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)


def draw(*shape):
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def filled(module):
    """Gives a module the same weights in torch and on JAX."""
    for parameter in module.parameters():
        parameter.data.copy_(draw(*parameter.shape))
    return module


IMAGE, KERNEL = draw(2, 4, 6, 6), draw(4, 2, 3, 3)
CASES = {
    "conv": (lambda x, w: F.conv2d(x, w, draw(4), stride=2, padding=1, groups=2), IMAGE, KERNEL),
    "conv_transpose": (lambda x, w: F.conv_transpose2d(x, w, padding=1), IMAGE, KERNEL),
    "max_pool": (lambda x: F.max_pool2d(x, 2), IMAGE),
    "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGE),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGE),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), IMAGE, draw(2, 3, 3, 2),
    ),
    "embedding_bag": (
        lambda w: F.embedding_bag(torch.tensor([[0, 2], [1, 1]]), w, mode="mean"), draw(3, 4),
    ),
    "ctc": (
        lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2]]), [5], [2]), draw(5, 1, 4),
    ),
    "cdist": (lambda x, y: torch.cdist(x, y), draw(3, 4), draw(5, 4)),
    "det": (torch.linalg.det, draw(3, 3)),
    "slogdet": (lambda x: torch.linalg.slogdet(x.mT)[1], draw(3, 3)),
    "lstm": (
        lambda x: filled(torch.nn.LSTM(4, 3, num_layers=2, bidirectional=True))(x)[0],
        draw(5, 2, 4),
    ),
    "lstm, batch first": (
        lambda x: filled(torch.nn.LSTM(4, 3, bias=False, batch_first=True))(x)[1][1], draw(2, 5, 4),
    ),
    "gru": (lambda x: filled(torch.nn.GRU(4, 3))(x)[0], draw(3, 2, 4)),
    "attention": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True),
        draw(1, 2, 3, 4), draw(1, 2, 3, 4),
    ),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, torch.tensor([1, 0]), label_smoothing=0.1), draw(2, 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_torchs(name):
    function, *tensors = CASES[name]
    results = []
    for context, move in ((nullcontext(), lambda x: x), (anyjax.torch.on_jax(), interop.to_jax)):
        leaves = [move(x.clone().requires_grad_()) for x in tensors]
        with context:
            out = function(*leaves)
        weight = torch.cos(torch.arange(out.numel(), dtype=torch.float32)).reshape(out.shape)
        grads = torch.autograd.grad((out * move(weight)).sum(), leaves)
        results.append([np.asarray(x.detach()) for x in (out, *grads)])
    assert_close(results[1], results[0], reduction=256)


def test_what_derivatives_serve():
    served = {str(op): str(forward) for op, forward in gradients.derivatives()}
    assert served["aten.upsample_bilinear2d_backward.default"] == "aten.upsample_bilinear2d.default"
    assert "aten.convolution_backward.default" not in served  # a row of its own
