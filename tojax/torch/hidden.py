"""Operators that write arguments although their schema says they do not: silent side effects.

Functionalization cannot see these writes, so their lowerings return (result, *new values of these
arguments) and the engine stores them. Source: aten/src/ATen/native/Normalization.cpp. Other
operators with a side effect (rrelu_with_noise, fused_moving_avg_obs_fake_quant, embedding_renorm_,
_batch_norm_with_update) declare it, and functionalization serves them.
"""

import torch

aten = torch.ops.aten
_STATISTICS = ("running_mean", "running_var")

HIDDEN_WRITES = {
    aten.batch_norm.default: _STATISTICS,
    aten.instance_norm.default: _STATISTICS,
    aten.native_batch_norm.default: _STATISTICS,
    aten.batch_norm_update_stats.default: _STATISTICS,
}
