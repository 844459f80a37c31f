"""A network learns to draw points of a circle by denoising: python examples/train_diffusion.py"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch import nn

import anyjax

STEPS = 50
KEPT = jnp.cumprod(1 - jnp.linspace(1e-3, 0.2, STEPS))  # of the signal


class Denoiser(nn.Sequential):
    def forward(self, points, time):
        angles = time[:, None] * 2.0 ** torch.arange(4) / STEPS
        return super().forward(torch.cat([points, torch.sin(angles), torch.cos(angles)], 1))


def loss(model, batch):
    """How well the noise in a point is told; the batch brings a seed for it."""
    points, seeds = batch
    key = jax.random.key(seeds[0])
    time = jax.random.randint(key, points.shape[:1], 0, STEPS)
    noise = jax.random.normal(jax.random.fold_in(key, 1), points.shape)
    kept = KEPT[time][:, None]
    mixed = jnp.sqrt(kept) * points + jnp.sqrt(1 - kept) * noise
    return jnp.mean((model(mixed, time.astype(jnp.float32)) - noise) ** 2)


@jax.jit
def drawn(model, noise):
    """New points: noise, denoised step by step (DDIM)."""

    def body(i, x):
        t = STEPS - 1 - i
        told = model.apply(model.params, x, jnp.full(len(x), t, jnp.float32))
        clean = (x - jnp.sqrt(1 - KEPT[t]) * told) / jnp.sqrt(KEPT[t])
        before = jnp.where(t > 0, KEPT[t - 1], 1.0)
        return jnp.sqrt(before) * clean + jnp.sqrt(1 - before) * told

    return jax.lax.fori_loop(0, STEPS, body, noise)


if __name__ == "__main__":
    torch.manual_seed(0)
    layers = nn.Linear(10, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2)
    model, tx = anyjax.from_torch(Denoiser(*layers)), optax.adam(2e-3)
    rng = np.random.default_rng(0)
    circle = rng.normal(size=(4096, 2)).astype(np.float32)
    circle *= 2 / np.linalg.norm(circle, axis=1, keepdims=True)
    data = circle, rng.integers(0, 2**32, 4096, dtype=np.uint32)
    batches, step = anyjax.train.Batches(data, 128, key=0), anyjax.train.make_step(loss, tx)
    state = anyjax.train.fit(anyjax.train.TrainState.create(model, tx), step, batches, epochs=30)
    noise = jax.random.normal(jax.random.key(1), (500, 2))
    far = [abs(jnp.linalg.norm(x, axis=1) - 2).mean() for x in (noise, drawn(state.model, noise))]
    print(f"distance from the circle: {far[0]:.3f} -> {far[1]:.3f}")
