"""Autocast of tensors on JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from anyjax.torchax.tensor import Environment, default_env


@contextlib.contextmanager
def autocast(
    device: object, dtype: torch.dtype = torch.bfloat16, env: Environment | None = None
) -> Iterator[None]:
    """Computes products and convolutions in this dtype, by the rules of ``torch.autocast``.

    Args:
      device: without meaning.
      dtype: of the operators that torch lists.
      env: an environment, whose ``param.autocast_dtype`` it is for as long.
    """
    with (env or default_env()).override_property(autocast_dtype=dtype):
        yield
