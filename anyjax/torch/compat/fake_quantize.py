"""``torch.ao.quantization`` while it is traced: what is on, and what was seen, is in buffers.

torch's modules ask their buffers; a program computes both answers and selects.
"""

from __future__ import annotations

import math

import torch
from torch.ao.quantization import fake_quantize, observer

from anyjax.torch.compat.patches import replaces
from anyjax.torch.core import private
from anyjax.torch.core.lifting import inner, is_traced
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.data_dependent import assertions
from anyjax.torch.ops.quantize import not_observed

ONE = torch.ones(1, 1)


def per_channel(cls: type) -> torch.nn.Module:
    """Returns an observer."""
    return cls(qscheme=torch.per_channel_symmetric, dtype=torch.qint8)


@replaces(private.FAKE_QUANTIZE, probe=lambda: fake_quantize.FakeQuantize()(ONE))
def forward(original, self, X):
    """Observed and rounded in any case, kept where it is on."""
    observing, rounding = self.observer_enabled[0] == 1, self.fake_quant_enabled[0] == 1
    if not (is_traced(observing) or is_traced(rounding)):
        return original(self, X)
    seen = (v for k, v in self.activation_post_process.named_buffers() if k != "eps")
    buffers = dict.fromkeys((*seen, self.scale, self.zero_point))
    old_buffers = [buffer.clone() for buffer in buffers]
    self.activation_post_process(X.detach())
    scale, zero_point = self.calculate_qparams()
    if scale.shape != self.scale.shape:
        raise not_observed()
    self.scale.copy_(scale)
    self.zero_point.copy_(zero_point)
    for buffer, old in zip(buffers, old_buffers):
        buffer.copy_(torch.where(observing, buffer, old))
    return torch.where(rounding, rounded(self, X), X)


def served(tensor: torch.Tensor) -> bool:
    """Returns whether this is JAX's, its values known or not."""
    return isinstance(inner(tensor), JaxTensor)


def rounded(self, X):
    """Rounds as the module does where it is on."""
    limits = self.activation_post_process.quant_min, self.activation_post_process.quant_max
    if not self.is_per_channel:
        return torch.fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, *limits)
    by = self.scale, self.zero_point, self.ch_axis
    return torch.fake_quantize_per_channel_affine(X, *by, *limits)


def unseen(min_val, max_val):
    """Returns whether these are the limits that an observer starts with."""
    return (min_val == math.inf) & (max_val == -math.inf)


@replaces(private.MOVING_AVERAGE, probe=lambda: observer.MovingAverageMinMaxObserver()(ONE))
def moving_average(original, self, x_orig):
    """The first values are the limits themselves."""
    if x_orig.numel() == 0 or not (is_traced(x_orig) or is_traced(self.min_val)):
        return original(self, x_orig)
    first = unseen(self.min_val, self.max_val)
    seen = torch.aminmax(x_orig.detach().to(self.min_val.dtype))
    for limit, extreme in zip((self.min_val, self.max_val), seen):
        limit.copy_(
            torch.where(first, extreme, limit + self.averaging_constant * (extreme - limit))
        )
    return x_orig


for _target in private.PER_CHANNEL:
    _cls = _target.place

    @replaces(_target, probe=lambda cls=_cls: per_channel(cls)(ONE))
    def per_channel_limits(original, self, x_orig):
        """In the first call the limits get their number."""
        if x_orig.numel() and self.min_val.numel() == 0 and served(x_orig):
            raise not_observed()
        return original(self, x_orig)


@replaces(private.FUSED, probe=lambda: fake_quantize.FusedMovingAvgObsFakeQuantize()(ONE))
def fused(original, X, observer_on, fake_quant_on, *args, **kwargs):
    """Functionalization has no kernel for it, and it resizes what it writes to."""
    tensors = X, observer_on, fake_quant_on, *args[:4]
    if len(args) < 4 or not any(map(served, tensors)):
        return original(X, observer_on, fake_quant_on, *args, **kwargs)
    functional = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional
    out, _, *written = functional(X, observer_on, fake_quant_on, *args, **kwargs)
    with torch.no_grad():
        for buffer, value in zip(args, written):
            buffer.copy_(value)
    return out


@replaces(private.QPARAMS, probe=lambda: observer.MinMaxObserver().calculate_qparams())
def calculate_qparams(original, self, min_val, max_val):
    """Of vectors torch makes no Python numbers. Limits that nothing was seen for mean 1 and 0."""
    if min_val.dim() or not (is_traced(min_val) or is_traced(max_val)):
        return original(self, min_val, max_val)
    none = unseen(min_val, max_val).reshape(1)
    limits = (torch.where(none, 0, v) for v in (min_val, max_val))
    scale, zero_point = original(self, *limits)
    return torch.where(none, 1, scale), torch.where(none, 0, zero_point)


@replaces(private.LIMITS_VALID, probe=lambda: observed().calculate_qparams())
def check_min_max_valid(original, min_val, max_val):
    """Makes the program check that the limits are in order."""
    if not (is_traced(min_val) or is_traced(max_val)) or min_val.numel() == 0:
        return original(min_val, max_val)
    assertions.note(~(min_val > max_val))
    return True


def observed() -> torch.nn.Module:
    """Returns an observer that has seen a value."""
    min_max = observer.MinMaxObserver()
    min_max(ONE)
    return min_max
