"""Flax weights that transformers 4 wrote, under torch's names and in its layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from anyjax.hf.loading.decide import Decision
from anyjax.hf.loading.find.checkpoint import check_layers
from anyjax.typing import PyTree

NAMES = {
    "kernel": "weight",
    "scale": "weight",
    "embedding": "weight",
    "mean": "running_mean",
    "var": "running_var",
}


def read_flax(decision: Decision) -> tuple[Any, dict[str, torch.Tensor]]:
    """Reads the msgpack files of a checkpoint as (class, state dict) of torch.

    Kernels have their inputs before their outputs, and convolutions their places first; both are
    turned. Names are torch's but for the last step; the module's own tell a norm's ``scale`` from a
    parameter of that name.

    Raises:
      BadCheckpoint: a file is damaged.
      MissingDependency: flax is not installed.
    """
    from anyjax.flax import read_params

    checkpoint, skeleton = decision.checkpoint, decision.skeleton()
    expected, weights = skeleton.state_dict().keys(), dict[str, torch.Tensor]()
    for file in checkpoint.flax:
        for path, array in _leaves(read_params(file), ()):
            steps = path[1:] if path[0] in ("params", "batch_stats") else path
            *home, leaf = (step for x in steps for step in x.split("/"))
            same = ".".join([*home, leaf])
            name = same if same in expected else ".".join([*home, NAMES.get(leaf, leaf)])
            weights[name] = _tensor(_turned(array) if leaf == "kernel" else array)
    check_layers(checkpoint.folder, checkpoint.config, len(weights))
    return type(skeleton), weights


def _leaves(tree: PyTree, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _turned(kernel: np.ndarray) -> np.ndarray:
    """Moves outputs and inputs first: (*places, inputs, outputs) is (outputs, inputs, *places)."""
    return kernel.transpose(-1, -2, *range(kernel.ndim - 2)) if kernel.ndim > 1 else kernel


def _tensor(array: np.ndarray) -> torch.Tensor:
    array = np.array(array, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
