"""Assertions inside models: a compiled program cannot raise, so they hold where all is known."""

from __future__ import annotations

import jax
import torch

from tojax.torch.schema import table

aten = torch.ops.aten


def holds(self, message="a condition does not hold"):
    if not isinstance(self, jax.core.Tracer) and not self:
        raise ValueError(message)


def holds_token(self, assert_msg, dep_token):
    holds(self, assert_msg)
    return dep_token


table.update(
    {
        aten._assert_async.default: lambda self: holds(self),
        aten._assert_async.msg: lambda self, assert_msg: holds(self, assert_msg),
        aten._functional_assert_async.msg: holds_token,
        aten._linalg_check_errors: lambda info, api_name, is_matrix: None,
    }
)
