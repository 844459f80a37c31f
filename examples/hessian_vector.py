"""Hessian-vector products: the sharpest direction by power iteration, and a Newton step by
conjugate gradients, no Hessian built: python examples/hessian_vector.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.flatten_util import ravel_pytree

import anyjax

if __name__ == "__main__":
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    model, rng = anyjax.from_torch(module), np.random.default_rng(0)
    x = rng.normal(size=(50, 3)).astype(np.float32)
    y = np.sin(x[:, :1])
    flat, unravel = ravel_pytree(model.params)

    def loss(flat):
        return jnp.mean((model.apply(unravel(flat), x) - y) ** 2)

    @jax.jit
    def product(flat, vector):
        """Hessian times vector, at the price of about three gradients."""
        return jax.jvp(jax.grad(loss), (flat,), (vector,))[1]

    vector = jnp.ones_like(flat)
    for _ in range(60):
        vector = product(flat, vector / jnp.linalg.norm(vector))
    sharpest = jnp.linalg.norm(vector)
    whole = jnp.linalg.eigvalsh(jax.hessian(loss)(flat))
    print(f"largest curvature {sharpest:.4f}, of the whole Hessian {abs(whole).max():.4f}")

    damped = lambda v: product(flat, v) + (0.1 - whole.min()) * v
    newton, _ = jax.scipy.sparse.linalg.cg(damped, jax.grad(loss)(flat), maxiter=30)
    print(f"loss {loss(flat):.3f} -> {loss(flat - newton):.3f} in one Newton step")
