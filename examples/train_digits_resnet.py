"""A ResNet learns digits and goes back to torch: python examples/train_digits_resnet.py"""

import tempfile

import numpy as np
import optax
import torch
from sklearn.datasets import load_digits
from torch import nn

import anyjax


class Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        first, second = nn.Conv2d(channels, out, 3, stride, 1), nn.Conv2d(out, out, 3, padding=1)
        norms = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.body = nn.Sequential(first, norms[0], nn.ReLU(), second, norms[1])
        self.short = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet() -> nn.Module:
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    return nn.Sequential(Block(1, 8, 1), Block(8, 16, 2), Block(16, 32, 2), *head)


def metrics(model, batch):
    images, labels = batch
    logits = model(images)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, {"accuracy": (logits.argmax(-1) == labels).mean()}


if __name__ == "__main__":
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    train, test = (images[:1440], labels[:1440]), (images[1440:], labels[1440:])
    model = anyjax.from_torch(resnet()).train()
    tx = optax.adamw(optax.cosine_decay_schedule(1e-2, 110))
    step = anyjax.train.make_step(metrics, tx, ema=0.9)
    state = anyjax.train.TrainState.create(model, tx)
    held_out = anyjax.train.Batches(test, 119)
    score = lambda state: anyjax.train.evaluate(state, held_out, metrics)
    folder, best = tempfile.mkdtemp(), "max eval_accuracy"
    options = {"folder": folder, "keep_best": best, "evaluate": score, "every": 55}
    batches = anyjax.train.Batches(train, 64, key=0)
    state = anyjax.train.fit(state, step, batches, steps=110, **options)
    best = anyjax.train.restore(folder, state, best)
    module = best.averaged.to_torch().eval()
    with torch.no_grad():
        accuracy = (module(torch.from_numpy(test[0])).argmax(-1).numpy() == test[1]).mean()
    print(f"accuracy {score(best)['accuracy']:.1%} in JAX, {accuracy:.1%} in torch")
