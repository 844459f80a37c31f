"""Two networks and two optimizers of PyTorch in one step: a GAN learns to draw a circle."""

import itertools
from functools import partial

import jax
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import anyjax


def network(*sizes: int) -> nn.Module:
    pairs = itertools.pairwise(sizes)
    layers = [part for a, b in pairs for part in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
    return nn.Sequential(*layers[:-1])


def make_step():
    torch.manual_seed(0)
    generator, critic = network(4, 64, 64, 2), network(2, 64, 64, 1)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
    yes, no = lambda logits: F.softplus(-logits).mean(), lambda logits: F.softplus(logits).mean()

    def step(real, noise):
        optimizer_d.zero_grad()
        drawn = generator(noise)
        loss_d = yes(critic(real)) + no(critic(drawn.detach()))
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = yes(critic(drawn))
        loss_g.backward()
        optimizer_g.step()
        return loss_d, loss_g

    return step, generator


def batches(count: int = 1500, size: int = 128):
    rng = np.random.default_rng(0)
    for _ in range(count):
        real = rng.standard_normal((size, 2)).astype(np.float32)
        real *= 2 / np.linalg.norm(real, axis=1, keepdims=True)
        yield real, rng.standard_normal((size, 4)).astype(np.float32)


if __name__ == "__main__":
    step, generator = make_step()
    far = lambda: abs(generator(torch.randn(500, 4)).norm(dim=1) - 2).mean().item()
    before, model = far(), anyjax.from_torch(step)
    run, state = jax.jit(partial(model.apply, model.params, mutable=True)), model.state
    for batch in batches():
        _, state = run(*batch, state=state)
    model.with_state(state).to_torch()
    print(f"distance from the circle: {before:.3f} -> {far():.3f}")
