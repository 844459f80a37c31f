"""XOR of two noisy bits, and the picture of the decision boundary: python examples/train_xor.py"""

import sys

import jax.numpy as jnp
import numpy as np
import optax
import torch
from matplotlib.figure import Figure

import anyjax


def data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(points around the four corners, whether exactly one of their bits is set)."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (count, 2))
    points = (bits + rng.normal(0, 0.1, bits.shape)).astype(np.float32)
    return points, (bits[:, 0] ^ bits[:, 1]).astype(np.float32)


def metrics(model, batch):
    points, labels = batch
    logits = model(points)[:, 0]
    loss = optax.sigmoid_binary_cross_entropy(logits, labels).mean()
    return loss, {"accuracy": ((logits > 0) == (labels > 0)).mean()}


def picture(model, points, labels, file: str) -> None:
    """The model's probability over the plane, and the points."""
    x, y = np.meshgrid(*[np.linspace(-0.5, 1.5, 100, dtype=np.float32)] * 2)
    logits = model(np.stack([x, y], -1).reshape(-1, 2)).reshape(x.shape)
    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = figure.subplots()
    axes.contourf(x, y, 1 / (1 + jnp.exp(-logits)), levels=20, cmap="RdBu")
    axes.contour(x, y, logits, levels=[0], colors="black")
    axes.scatter(*points.T, c=labels, cmap="RdBu", edgecolors="black")
    axes.set(xlabel="first bit", ylabel="second bit")
    figure.savefig(file)


if __name__ == "__main__":
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model, tx = anyjax.from_torch(module), optax.adam(3e-2)
    state = anyjax.train.TrainState.create(model, tx)
    step = anyjax.train.make_step(metrics, tx)
    test = data(200, seed=1)
    before = anyjax.train.evaluate(state, [test], metrics)
    batches = anyjax.train.Batches(data(1000, seed=0), 100, key=0)
    state = anyjax.train.fit(state, step, batches, epochs=15)
    after = anyjax.train.evaluate(state, [test], metrics)
    print(f"loss {before['loss']:.3f} -> {after['loss']:.3f}, accuracy {after['accuracy']:.0%}")
    picture(state.model, *test, sys.argv[1] if len(sys.argv) > 1 else "xor.png")
