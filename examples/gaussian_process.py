"""A Gaussian process by torch.distributions: python examples/gaussian_process.py picture.svg"""

import sys

import jax
import numpy as np
import scipy.optimize
import torch
from matplotlib import pyplot as plt

import anyjax

jax.config.update("jax_enable_x64", True)  # Cholesky factors of covariances


class Process(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.logs = torch.nn.Parameter(torch.zeros(3).double())  # of scale, length, noise

    def forward(self, x, y, new):  # log density of y; mean, deviation at new places
        scale, length, noise = self.logs.exp()
        near = lambda a, b: scale**2 * torch.exp(-(((a[:, None] - b) / length) ** 2) / 2)
        covariance = near(x, x) + noise**2 * torch.eye(len(x))
        law = torch.distributions.MultivariateNormal(0 * x, covariance)
        solved = torch.cholesky_solve(near(x, new), law.scale_tril)
        variance = scale**2 - (near(x, new) * solved).sum(0)
        return law.log_prob(y), solved.T @ y, variance.sqrt()


model, rng = anyjax.from_torch(Process()), np.random.default_rng(0)
x, new = rng.uniform(0, 6, 20), np.linspace(-1, 7, 100)
y = np.sin(2 * x) + 0.1 * rng.normal(size=20)
loss = jax.jit(jax.value_and_grad(lambda logs: -model.apply({"logs": logs}, x, y, new)[0]))
best = scipy.optimize.minimize(loss, np.zeros(3), jac=True)
_, mean, deviation = model.apply({"logs": best.x}, x, y, new)
print(f"-log density {loss(np.zeros(3))[0]:.1f} -> {best.fun:.1f}, noise {np.exp(best.x[2]):.2f}")
plt.fill_between(new, mean - 2 * deviation, mean + 2 * deviation, alpha=0.3)
plt.plot(new, mean, "C0", x, y, "k.")
plt.savefig(sys.argv[1] if sys.argv[1:] else "gaussian_process.svg")
