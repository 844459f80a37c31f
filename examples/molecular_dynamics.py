"""A cluster of atoms melts; its potential is torch: python examples/molecular_dynamics.py x.svg"""

import sys

import jax
import torch
from jax import numpy as jnp
from matplotlib import pyplot as plt

import anyjax


class Cluster(torch.nn.Module):
    def forward(self, positions):
        r = torch.nn.functional.pdist(positions)  # Lennard-Jones, in a shallow bowl
        return 4 * (r**-12 - r**-6).sum() + 0.005 * (positions**2).sum()


model, DT, DECAY = anyjax.from_torch(Cluster()), 0.01, 0.995
slope = jax.value_and_grad(lambda r: model.apply({}, r))


def step(state, key):  # of Langevin dynamics: kick, drift, friction and noise, drift, kick
    r, v, gradient, t = state
    v = v - DT / 2 * gradient
    other = DECAY * v + jnp.sqrt(t * (1 - DECAY**2)) * jax.random.normal(key, v.shape)
    energy, gradient = slope(r := r + DT / 2 * (v + other))
    return (r, other - DT / 2 * gradient, gradient, t), energy


corners = jnp.array([[0, a, 1.618 * b] for a in (0.57, -0.57) for b in (0.57, -0.57)])
start = jnp.concatenate([jnp.zeros((1, 3))] + [jnp.roll(corners, i, 1) for i in range(3)])
keys, temperatures = jax.random.split(jax.random.key(0), 24_000), jnp.linspace(0.1, 0.34, 13)
run = lambda t: jax.lax.scan(step, (start, 0 * start, 0 * start, t), keys)[1][4000:]
energies = jax.jit(jax.vmap(run))(temperatures)  # all temperatures at once
capacity = energies.var(1) / temperatures**2
print(f"lowest energy {energies.min():.1f}; melts at {temperatures[capacity.argmax()]:.2f}")
plt.plot(temperatures, energies.mean(1), "o-")
plt.twinx().plot(temperatures, capacity, "C1s-")
plt.savefig(sys.argv[1] if sys.argv[1:] else "molecular_dynamics.svg")
