"""Small models that the tests of both kinds of modules wrap."""

import functools

import numpy as np
import pytest
import torch

import anyjax

X = np.random.default_rng(0).standard_normal((5, 3, 6, 6)).astype(np.float32)
LABELS = np.array([0, 1, 0, 1, 1])
IDS = np.array([[1, 5, 9, 2]])


class Net(torch.nn.Module):
    """A convolution, statistics of batches, dropout, and a head."""

    def __init__(self, rate=0.5):
        super().__init__()
        conv, norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.features = torch.nn.Sequential(conv, norm, torch.nn.ReLU(), torch.nn.Dropout(rate))
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


class Counting(torch.nn.Module):
    """State of other kinds: a buffer, an attribute that grows into state, and one that does not."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int32))
        self.total, self.last = torch.zeros(()), None

    def forward(self, x):
        self.calls += 1
        self.total, self.last = self.total + x, x
        return self.total * self.calls


@functools.cache
def net() -> anyjax.Model:
    """In training mode."""
    torch.manual_seed(0)
    return anyjax.from_torch(Net())


@functools.cache
def gpt2() -> anyjax.Model:
    """A language model with tied weights."""
    pytest.importorskip("transformers")
    from tests.models import tiny

    return anyjax.from_torch(tiny.gpt2())


@functools.cache
def keras_net():
    """A Keras model with statistics of batches and dropout, and what it is fed with."""
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")

    layers = keras.layers
    built = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dropout(0.5)]
    )
    return built, X[:, 0, 0, :4]


def torch_gradients(module: torch.nn.Module, x: np.ndarray) -> dict[str, torch.Tensor]:
    """Of the sum of squares of the output, by name."""
    module.zero_grad()
    (module(torch.from_numpy(x)) ** 2).sum().backward()
    return {name: p.grad for name, p in module.named_parameters()}
