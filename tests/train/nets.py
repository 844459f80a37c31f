"""Small models and their data."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import optax
import torch

import anyjax


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


@functools.cache
def standard(rate: float = 1e-2):
    """(model with BatchNorm and Dropout, optimizer, step): compiled once for all tests."""
    model = anyjax.from_torch(mlp(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1))).train()
    tx = optax.adam(rate)
    return model, tx, anyjax.train.make_step(mse, tx)


def begin(seed: int = 0):
    """(its state, its step)."""
    model, tx, step = standard()
    return anyjax.train.TrainState.create(model, tx, rng=seed), step


def stateful(module: torch.nn.Module, tx, rng: int = 0):
    """(model in training mode, its TrainState)."""
    model = anyjax.from_torch(module).train()
    return model, anyjax.train.TrainState.create(model, tx, rng=rng)
