"""Small models and their data."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch

import tojax


def mlp(*more: torch.nn.Module, seed: int = 0, inputs: int = 4) -> torch.nn.Module:
    """Linear layers with ``more`` between them."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, 8), *more, torch.nn.Tanh(), torch.nn.Linear(8, 2)
    )


def rows(count: int = 8, seed: int = 0, inputs: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, targets)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, inputs)).astype(np.float32)
    return x, np.tanh(x[:, :2] * 2).astype(np.float32)


def mse(model, batch):
    """The mean squared error."""
    x, y = batch
    return jnp.mean((model(x) - y) ** 2)


def stateful(module: torch.nn.Module, tx, rng: int = 0):
    """(model in training mode, its TrainState)."""
    model = tojax.from_torch(module).train()
    return model, tojax.train.TrainState.create(model, tx, rng=rng)
