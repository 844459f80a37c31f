"""A torch backbone in a hand-written Linen classifier, with TrainState and batch_stats.

Task and backbone are those of `flax_nnx_backbone.py`: python examples/flax_linen_trainstate.py
"""

from typing import Any

import jax
import optax
from flax import linen as nn
from flax.training import train_state
from flax_nnx_backbone import backbone, batch

import anyjax


class Classifier(nn.Module):
    backbone: nn.Module

    @nn.compact
    def __call__(self, images, train: bool):
        return nn.Dense(2)(self.backbone(images, train=train))


class TrainState(train_state.TrainState):
    batch_stats: Any

    def variables(self, params):
        return {"params": params, "batch_stats": self.batch_stats}


@jax.jit
def step(state, images, labels, key):
    def loss(params):
        options = {"mutable": ["batch_stats"], "rngs": {"dropout": key}}
        logits, written = state.apply_fn(state.variables(params), images, True, **options)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), written["batch_stats"]

    (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, batch_stats=stats), value


if __name__ == "__main__":
    model = Classifier(anyjax.flax.to_linen(backbone(), pretrained=True))
    keys = jax.random.split(jax.random.key(0), 31)
    images, labels = batch(keys[0], 200)
    variables = model.init(jax.random.key(1), images, train=False)
    state = TrainState.create(apply_fn=model.apply, tx=optax.adam(3e-2), **variables)
    losses = []
    for key in keys[1:]:
        state, value = step(state, *batch(key), key)
        losses.append(float(value))
    logits = model.apply(state.variables(state.params), images, train=False)
    accuracy = (logits.argmax(-1) == labels).mean()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.0%}")
