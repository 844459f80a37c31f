"""Influence functions: how much a test loss would change if one training sample were left out,
without training again; compared with training again: python examples/influence.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.flatten_util import ravel_pytree

import anyjax

DECAY = 0.05

if __name__ == "__main__":
    torch.manual_seed(0)
    model, rng = anyjax.from_torch(torch.nn.Linear(5, 1)), np.random.default_rng(0)
    x = rng.normal(size=(40, 5)).astype(np.float32)
    y = (x.sum(1) > 0).astype(np.float32)
    y[17] = 1 - y[17]  # a wrong label
    test_x, test_y = x[30:] * 1.1, (x[30:].sum(1) > 0).astype(np.float32)
    flat, unravel = ravel_pytree(model.params)

    def losses(flat, x, y):
        logits = model.apply(unravel(flat), x)[:, 0]
        return jax.nn.softplus(logits) - y * logits

    def objective(flat, weights):
        return (weights * losses(flat, x, y)).sum() / len(x) + DECAY * (flat**2).sum()

    @jax.jit
    def trained(weights):
        """Newton's method: the objective is convex."""
        step = lambda _, w: (
            w
            - jnp.linalg.solve(jax.hessian(objective)(w, weights), jax.grad(objective)(w, weights))
        )
        return jax.lax.fori_loop(0, 8, step, flat)

    test = lambda w: losses(w, test_x, test_y).mean()
    ones = jnp.ones(len(x))
    best = trained(ones)
    one = lambda w, x, y: losses(w, x[None], y[None])[0]
    each = jax.vmap(jax.grad(one), (None, 0, 0))(best, x, y)
    hessian = jax.hessian(objective)(best, ones)
    predicted = each @ jnp.linalg.solve(hessian, jax.grad(test)(best)) / len(x)
    again = jax.vmap(lambda i: test(trained(ones.at[i].set(0.0))))(jnp.arange(len(x))) - test(best)
    match = np.corrcoef(predicted, again)[0, 1]
    print(f"correlation with training again {match:.3f}; better without {predicted.argmin()}")
