"""Operators that write arguments although their schema says they do not: torch's silent side effects.

Functionalization cannot see these writes, so their lowerings return (result, *new values of these arguments) and
the engine stores them. Sources: aten/src/ATen/native/Normalization.cpp and RReLU in Activation.cpp.
"""

import torch

aten = torch.ops.aten
_STATISTICS = ("running_mean", "running_var")

HIDDEN_WRITES = {
    aten.batch_norm.default: _STATISTICS,
    aten.instance_norm.default: _STATISTICS,
    aten.native_batch_norm.default: _STATISTICS,
}
