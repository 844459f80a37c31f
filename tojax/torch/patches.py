"""The few Python functions of torch's own that read a tensor's values, replaced during a trace.

Each replacement computes the same without looking: a check of the values is left out, a hint that
only chooses a faster kernel is not given. Outside a trace, also in other threads, the original
runs.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator

import torch
from torch.nn import functional as F
from torch.nn.modules import batchnorm, transformer

from tojax.errors import DataDependent
from tojax.torch import checks, conditions, distributions, in_place, transformers
from tojax.torch.control import checkpoint
from tojax.torch.tensor import JaxTensor, inner


def detect_is_causal_mask(original, mask, is_causal=None, size=None):
    """The hint that a mask is causal: the mask itself says it, too."""
    return is_causal is True


def batch_norm(original, self, input):
    """A cumulative average (momentum=None): torch makes a Python float of the batch count."""
    if not (self.training and self.track_running_stats and self.momentum is None):
        return original(self, input)
    before = self.running_mean.clone(), self.running_var.clone()
    self.momentum = 1.0
    try:
        out = original(self, input)
    finally:
        self.momentum = None
    for buffer, old in zip((self.running_mean, self.running_var), before):
        buffer.copy_(old + (buffer - old) / self.num_batches_tracked)
    return out


def gaussian_nll_loss(original, input, target, var, full=False, eps=1e-6, reduction="mean"):
    """torch first checks that no variance is negative."""
    if not isinstance(var, torch.Tensor):
        return original(input, target, var, full, eps, reduction)
    if var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()


def is_dynamo_compiling(original):
    """torch's control flow calls Dynamo unless Dynamo calls it; then it goes to its operator."""
    asking = sys._getframe(2).f_globals.get("__name__", "")
    return original() or asking.startswith(("torch._higher_order_ops", "torch.nn.attention"))


def check_tensor_all_with(original, error_type, cond, message=None):
    """torch reads the condition; where it is traced, the program does."""
    try:
        original(error_type, cond, message)
    except DataDependent:
        conditions.note(cond)


def assert_async(original, input, *message):
    """It raises where the condition is known."""
    original(input, *message)
    if isinstance(inner(input), JaxTensor):
        conditions.note(input)


def unique(original, input, *args, **kwargs):
    """One value where a check asks whether there are more (checks.py)."""
    try:
        return original(input, *args, **kwargs)
    except DataDependent:
        if args or kwargs or not checks.alike_at(sys._getframe(2)):
            raise
        checks.left_out(3)
        return input.reshape(-1)[:1]


# Whoever imported torch's checkpoint by name gets to this attribute of it, too.
CHECKPOINT = torch.utils.checkpoint.checkpoint.__wrapped__


def fill_diagonal_(original, self, fill_value, wrap=False):
    """The one in-place operator that functionalization does not know."""
    if self.dim() > 1 and len(set(self.shape)) > 1 and self.dim() != 2:
        return original(self, fill_value, wrap)  # raises
    row, *others = torch.meshgrid(*map(torch.arange, self.shape), indexing="ij")
    row = row % (self.shape[-1] + 1) if wrap else row
    return self.masked_fill_(torch.stack([row == i for i in others]).all(0), fill_value)


PATCHES: list[tuple[object, str, Callable]] = [
    (transformer, "_detect_is_causal_mask", detect_is_causal_mask),
    (batchnorm._BatchNorm, "forward", batch_norm),
    (F, "gaussian_nll_loss", gaussian_nll_loss),
    (torch.compiler, "is_dynamo_compiling", is_dynamo_compiling),
    (torch, "_check_tensor_all_with", check_tensor_all_with),
    (torch, "_assert_async", assert_async),
    (torch, "unique", unique),
    (torch, "unique_consecutive", unique),
    (CHECKPOINT, "__dynamo_disable", checkpoint),
    (torch.Tensor, "fill_diagonal_", fill_diagonal_),
    *distributions.PATCHES,
    *in_place.PATCHES,
]


@contextlib.contextmanager
def patched(active: Callable[[], bool]) -> Iterator[None]:
    """All patches, for the threads in which ``active()``."""
    patches = [*PATCHES, *transformers.patches()]
    originals = [getattr(owner, name, owner) for owner, name, _ in patches]
    own = [name in vars(owner) for owner, name, _ in patches]
    for (owner, name, patch), original in zip(patches, originals):
        setattr(owner, name, _choose(patch, original, active))
    try:
        yield
    finally:
        for (owner, name, _), original, was_there in zip(patches, originals, own):
            setattr(owner, name, original) if was_there else delattr(owner, name)


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Parts that ``torch.compile`` was applied to run as they were written."""
    if "torch._dynamo" not in sys.modules:  # nothing was compiled, and its import takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _choose(patch, original, active):
    @functools.wraps(original)
    def function(*args, **kwargs):
        return patch(original, *args, **kwargs) if active() else original(*args, **kwargs)

    return function
