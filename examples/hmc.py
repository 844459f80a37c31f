"""Hamiltonian Monte Carlo over a torch network's weights: python examples/hmc.py picture.svg"""

import sys

import jax
import numpy as np
import torch
from jax import numpy as jnp
from jax.flatten_util import ravel_pytree
from matplotlib import pyplot as plt

import anyjax

net = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
model, rng = anyjax.from_torch(net), np.random.default_rng(0)
x = (rng.uniform(1, 3, (40, 1)) * np.repeat([[-1], [1]], 20, 0)).astype(np.float32)
y = np.sin(2 * x) + rng.normal(0, 0.1, x.shape).astype(np.float32)
start, unravel = ravel_pytree(model.params)
predict = lambda w, x: model.apply(unravel(w), x)[:, 0]
energy = lambda w: 50 * ((predict(w, x) - y[:, 0]) ** 2).sum() + w @ w / 2  # -log posterior


def move(w, key, size=4e-3):
    p = jax.random.normal(key, w.shape)
    kick = lambda p, w: p - size / 2 * jax.grad(energy)(w)
    leap = lambda _, s: (q := s[0] + size * (p := kick(*s[::-1])), kick(p, q))
    q, r = jax.lax.fori_loop(0, 60, leap, (w, p))
    chance = jnp.exp(jnp.minimum(0, energy(w) - energy(q) + (p @ p - r @ r) / 2))
    return (jnp.where(jax.random.bernoulli(jax.random.fold_in(key, 1), chance), q, w),) * 2


chain = jax.jit(jax.vmap(lambda keys: jax.lax.scan(move, 0 * start, keys)[1]))  # eight at once
draws = chain(jax.random.split(jax.random.key(0), (8, 300)))
grid = np.linspace(-4, 4, 81, dtype=np.float32)[:, None]
curves = jax.vmap(predict, (0, None))(draws[:, 150::10].reshape(-1, start.size), grid)
mean, width = curves.mean(0), 2 * curves.std(0)
print(f"two deviations: {width[40]:.2f} between the points, {width[60]:.2f} among them")
plt.fill_between(grid[:, 0], mean - width, mean + width, alpha=0.3)
plt.plot(grid, mean, "C0", x, y, "k.")
plt.savefig(sys.argv[1] if sys.argv[1:] else "hmc.svg")
