"""Assertions inside models: a compiled program cannot raise, so they hold where all is known."""

from __future__ import annotations

import jax

from anyjax.torch.core.schema import aten, table


def holds(condition, message="a condition does not hold", /):
    if not isinstance(condition, jax.core.Tracer) and not condition:
        raise ValueError(message)


def holds_token(self, assert_msg, dep_token):
    holds(self, assert_msg)
    return dep_token


table.update(
    {
        aten._assert_async.default: holds,
        aten._assert_async.msg: holds,
        aten._functional_assert_async.msg: holds_token,
        aten._assert_tensor_metadata: lambda a, size, stride, dtype: None,
        aten._linalg_check_errors: lambda info, api_name, is_matrix: None,
    }
)
