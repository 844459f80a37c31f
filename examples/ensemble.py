"""An ensemble by vmap over stacked params: eight networks trained at once, whose disagreement shows
where there was no data: python examples/ensemble.py [PICTURE]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import anyjax

MEMBERS = 8


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def draw(x, y, grid, curves, file: str) -> None:
    from matplotlib.figure import Figure

    axes = Figure((6, 3), layout="constrained").subplots()
    axes.plot(grid[:, 0], curves[..., 0].T, color="tab:blue", lw=1)
    axes.plot(x, y, "k.", ms=3)
    axes.set(xlabel="x", ylabel="y", title="data, and what each member learned")
    axes.figure.savefig(file)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (128, 1)).astype(np.float32)
    y = np.sin(3 * x) + rng.normal(0, 0.05, x.shape).astype(np.float32)
    models = [anyjax.from_torch(network(seed)) for seed in range(MEMBERS)]
    model, params = models[0], jax.tree.map(lambda *xs: jnp.stack(xs), *[m.params for m in models])
    tx = optax.adam(2e-2)

    def loss(params):
        return jnp.mean((model.apply(params, x) - y) ** 2)

    @jax.jit
    @jax.vmap
    def train(params):
        def step(carry, _):
            params, opt_state = carry
            value, grads = jax.value_and_grad(loss)(params)
            updates, opt_state = tx.update(grads, opt_state)
            return (optax.apply_updates(params, updates), opt_state), value

        (params, _), losses = jax.lax.scan(step, (params, tx.init(params)), length=200)
        return params, losses

    params, losses = train(params)
    points = np.array([[0.0], [0.5], [3.0]], np.float32)
    spread = jax.vmap(model.apply, (0, None))(params, points).std(0)[:, 0]
    print(f"loss {losses[:, 0].mean():.3f} -> {losses[:, -1].mean():.3f} over {MEMBERS} members")
    print(f"spread {spread[:2].max():.3f} among the data, {spread[2]:.3f} far from it")
    if len(sys.argv) > 1:
        grid = np.linspace(-3, 3, 200, dtype=np.float32)[:, None]
        draw(x, y, grid, jax.vmap(model.apply, (0, None))(params, grid), sys.argv[1])
