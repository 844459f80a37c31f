"""Hyper-parameters by gradient descent: the learning rate and the weight decay are improved by
differentiating validation loss through the whole optimisation: python examples/hyper_gradients.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import anyjax

if __name__ == "__main__":
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model, rng = anyjax.from_torch(module), np.random.default_rng(0)
    x = rng.normal(size=(96, 8)).astype(np.float32)
    y = np.tanh(x[:, :1] * 2) + rng.normal(0, 0.3, (96, 1)).astype(np.float32)
    train, held_out = (x[:32], y[:32]), (x[32:], y[32:])

    def loss(params, batch):
        return jnp.mean((model.apply(params, batch[0]) - batch[1]) ** 2)

    def outcome(hyper):
        """The held-out loss after 30 steps with these hyper-parameters, given as logarithms."""

        def step(params, _):
            grads = jax.grad(loss)(params, train)
            decay = lambda p, g: p - jnp.exp(hyper["rate"]) * (g + jnp.exp(hyper["decay"]) * p)
            return jax.tree.map(decay, params, grads), None

        params, _ = jax.lax.scan(jax.checkpoint(step), dict(model.params), length=30)
        return loss(params, held_out)

    improve, tx = jax.jit(jax.value_and_grad(outcome)), optax.adam(0.3)
    hyper = {"rate": jnp.log(0.01), "decay": jnp.log(0.001)}
    opt_state, values = tx.init(hyper), []
    for _ in range(15):
        value, grads = improve(hyper)
        values.append(float(value))
        updates, opt_state = tx.update(grads, opt_state)
        hyper = optax.apply_updates(hyper, updates)
    print(f"held-out loss {values[0]:.3f} -> {min(values):.3f}")
    print(
        f"rate 0.010 -> {jnp.exp(hyper['rate']):.3f}, decay 0.001 -> {jnp.exp(hyper['decay']):.3f}"
    )
