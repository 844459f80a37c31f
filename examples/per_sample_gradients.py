"""Per-sample gradients by vmap(grad): which training samples pull hardest, and a private step that
clips each one's gradient and adds noise: python examples/per_sample_gradients.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import anyjax

if __name__ == "__main__":
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model, rng = anyjax.from_torch(module), np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    y = x.sum(1)
    y[5] += 20  # a wrong label

    def loss(params, x, y):
        return (model.apply(params, x[None])[0, 0] - y) ** 2

    grads = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(model.params, x, y)
    norms = jax.vmap(optax.tree.norm)(grads)
    times = norms.max() / jnp.median(norms)
    print(f"sample {norms.argmax()} pulls hardest, {times:.0f} times the median")

    # one by one in torch
    for i in (0, 5, 63):
        module.zero_grad()
        ((module(torch.from_numpy(x[i])) - y[i]) ** 2).sum().backward()
        want = module[0].weight.grad.numpy()
        assert np.allclose(grads["0.weight"][i], want, atol=1e-4 * abs(want).max())

    private = optax.contrib.differentially_private_aggregate(1.0, 0.1, key=jax.random.key(0))
    step, _ = private.update(grads, private.init(model.params))
    print(f"private gradient of norm {optax.tree.norm(step):.2f}, at most 1 by each sample")
