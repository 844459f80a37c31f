"""Checkpoints of pytrees, in the format of Flax's checkpoints."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from anyjax.torch.core import interop
from anyjax.torch.eager.environment import mapped
from anyjax.typing import Output


def save_checkpoint(state: Mapping[str, object], path: str, step: int) -> None:
    """Writes a pytree of tensors and arrays.

    Args:
      state: what to write.
      path: a folder.
      step: the number of the checkpoint.

    Example:
      >>> import tempfile, torch
      >>> save_checkpoint({"weight": torch.ones(2)}, folder := tempfile.mkdtemp(), step=1)
      >>> load_checkpoint(folder)
      {'weight': Array([1., 1.], dtype=float32)}
    """
    from flax.training import checkpoints

    arrays = mapped(interop.to_jax, dict(state))
    checkpoints.save_checkpoint(os.path.abspath(path), arrays, step=step, overwrite=True)


def load_checkpoint(path: str) -> Output:
    """Returns the pytree of a checkpoint with arrays in it.

    Args:
      path: a folder of ``save_checkpoint``, or a file of ``torch.save``.

    Raises:
      FileNotFoundError: there is neither.

    Example:
      >>> import tempfile, torch
      >>> torch.save({"weight": torch.ones(2)}, file := tempfile.mkdtemp() + "/weights.pt")
      >>> load_checkpoint(file)
      {'weight': Array([1., 1.], dtype=float32)}
    """
    if os.path.isfile(path):
        return mapped(interop.to_jax, torch.load(path, weights_only=False))
    from flax.training import checkpoints

    with warnings.catch_warnings():  # arrays go where they were
        warnings.filterwarnings("ignore", "Sharding info not provided")
        state: Any = checkpoints.restore_checkpoint(os.path.abspath(path), target=None)
    if state is None:
        raise FileNotFoundError(f"No checkpoint found at {path}")
    return state
