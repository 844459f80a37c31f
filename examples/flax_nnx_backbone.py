"""A torch backbone in a hand-written nnx classifier: is a grating horizontal or vertical?

python examples/flax_nnx_backbone.py
"""

import jax
import jax.numpy as jnp
import optax
import torch
from flax import nnx
from torch.nn import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Dropout, Flatten, ReLU, Sequential

import anyjax


def backbone() -> Sequential:
    """Any module of torch, with weights of any origin."""
    torch.manual_seed(0)
    layers = Conv2d(1, 8, 3), BatchNorm2d(8), ReLU(), AdaptiveAvgPool2d(1), Flatten(), Dropout(0.1)
    return Sequential(*layers)


class Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.backbone = anyjax.flax.to_nnx(backbone(), rngs=rngs, pretrained=True)
        self.head = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, images):
        return self.head(self.backbone(images))


def batch(key, size=32):
    """(images, labels)."""
    labels = jax.random.randint(key, (size,), 0, 2)
    wave = jnp.broadcast_to(jnp.sin(jnp.arange(8.0) * 2), (8, 8))
    images = jnp.where(labels[:, None, None], wave, wave.T)[:, None]
    return images + 0.1 * jax.random.normal(key, images.shape), labels


@nnx.jit
def step(model, optimizer, images, labels):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


if __name__ == "__main__":
    model = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(3e-2), wrt=nnx.Param)
    keys = jax.random.split(jax.random.key(0), 31)
    losses = [float(step(model, optimizer, *batch(key))) for key in keys[1:]]
    model.eval()  # the backbone, too: stored statistics, no dropout
    images, labels = batch(keys[0], 200)
    accuracy = (model(images).argmax(-1) == labels).mean()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, accuracy {accuracy:.0%}")
