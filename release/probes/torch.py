"""A module, its gradient, and a saved copy."""

import jax
import numpy as np
import torch

import anyjax

module = torch.nn.Linear(4, 3)
model = anyjax.from_torch(module)
x = np.ones((2, 4), np.float32)
np.testing.assert_allclose(model(x), module(torch.ones(2, 4)).detach(), rtol=1e-5)
grads = jax.grad(lambda params: model.apply(params, x).sum())(model.params)
np.testing.assert_allclose(grads["bias"], 2.0)
model.save("saved", x)
np.testing.assert_allclose(anyjax.load("saved")(x), model(x), rtol=1e-6)
print("ok: from_torch, gradient, save and load")
