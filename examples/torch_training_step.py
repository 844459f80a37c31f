"""A training step of PyTorch, as it is: its state is a pytree, one call of it a jitted XLA program.

Nothing in ``step`` is rewritten: the network, its optimizer and the schedule are torch's own.
"""

from functools import partial

import jax
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import anyjax


def make_step():
    """What a script for PyTorch has before its loop."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)

    def step(images, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    return step, net


def digits(count: int = 60):
    """Batches of noisy patterns, one for each of ten labels."""
    rng = np.random.default_rng(0)
    patterns = rng.standard_normal((10, 64)).astype(np.float32)
    for _ in range(count):
        labels = rng.integers(0, 10, 32).astype(np.int32)
        yield patterns[labels] + rng.standard_normal((32, 64)).astype(np.float32), labels


def main() -> None:
    """Trains in JAX, and looks at the result in torch."""
    step, net = make_step()
    model = anyjax.from_torch(step)  # weights, moments, learning rate: all of it is model.state
    run = jax.jit(partial(model.apply, mutable=True))
    state, losses = model.state, []
    for images, labels in digits():
        loss, state = run(model.params, images, labels, state=state)
        losses.append(float(loss))
    anyjax.Model(model.params, state, model.source).to_torch()
    right = net.eval()(torch.from_numpy(images)).argmax(-1) == torch.from_numpy(labels)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {right.float().mean():.0%}")


if __name__ == "__main__":
    main()
