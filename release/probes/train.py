"""A saved model is trained further, without PyTorch."""

import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
import optax

import anyjax

assert importlib.util.find_spec("torch") is None
model = anyjax.load(Path(sys.argv[1], "saved"))
x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
tx = optax.adam(1e-1)
step = anyjax.train.make_step(lambda model, batch: ((model(batch) - 1.0) ** 2).mean(), tx)
state = anyjax.train.TrainState.create(model, tx, rng=jax.random.key(0))
losses = []
for _ in range(20):
    state, metrics = step(state, x)
    losses.append(float(metrics["loss"]))
assert losses[-1] < losses[0] / 2, losses
print("ok: a saved model learns")
