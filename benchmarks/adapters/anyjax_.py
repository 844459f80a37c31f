"""anyjax through its public names."""

import jax
import numpy as np
import optax

import anyjax
from adapters import RATE, tf2jax_
from anyjax.train import TrainState, make_step


def forward(module, inputs):
    model, inputs = anyjax.from_torch(module), {k: x.numpy() for k, x in inputs.items()}
    options = {"use_cache": False} if "input_ids" in inputs else {}
    fn = jax.jit(lambda params, inputs: model.apply(params, **inputs, **options).logits)
    return lambda: np.asarray(fn(model.params, inputs))


def generate(module, ids, new):
    model, ids = anyjax.from_torch(module), ids.numpy()
    return lambda: np.asarray(anyjax.generate(model, ids, max_new_tokens=new))


def causal(model, batch):
    """The same loss as transformers', without the model's own cache."""
    ids = batch["input_ids"]
    logits = model(input_ids=ids, use_cache=False).logits
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], ids[:, 1:]).mean()


def train(module, tx=None, loss=causal):
    tx = tx or optax.adam(RATE)
    model, step = anyjax.from_torch(module), make_step(loss, tx)
    state = TrainState.create(model, tx)

    def call(ids):
        nonlocal state
        state, metrics = step(state, {"input_ids": ids})
        return float(metrics["loss"])

    return call


def keras(function, x):
    return tf2jax_.keras(function, x, anyjax.tensorflow.convert)
