"""BatchNorm in the weights of the layer before it."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported, WrongArguments, WrongValue
from anyjax.transforms import fold_batchnorm, quantize
from tests.tolerance import assert_close


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 6, 2, 2, groups=2)
        self.up_norm = nn.BatchNorm2d(6, affine=False)
        self.head = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.free = nn.BatchNorm2d(3)  # after no layer

    def forward(self, x):
        x = self.norm(self.stem(self.free(x))).relu()
        return self.head(self.up_norm(self.up(x)).mean((2, 3)))


def trained(module):
    """The module with statistics of its own, in evaluation mode."""
    torch.manual_seed(0)
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.running_mean.normal_(), layer.running_var.uniform_(0.5, 2)
            if layer.affine:
                nn.init.normal_(layer.weight), nn.init.normal_(layer.bias)
    return module.eval()


X = np.random.default_rng(0).standard_normal((2, 3, 12, 12)).astype(np.float32)


def test_values_and_arrays():
    module = trained(Net())
    model = anyjax.from_torch(module)
    model = model.with_params(jax.tree.map(lambda x: 1.5 * x, model.params))
    want = model(X)
    folded = fold_batchnorm(model, X)
    assert_close(folded(X), want, reduction=300)
    layers = [f"{path}.{name}" for path in ("stem", "up", "head.0") for name in ("weight", "bias")]
    assert {*folded.params} == {*layers, "free.weight", "free.bias"}
    assert {x.partition(".")[0] for x in folded.state} == {"free"}
    assert_close(model(X), want)  # nothing of it has changed, nor of torch's
    assert module.stem.bias is None
    gradient = jax.grad(lambda params: folded.with_params(params)(X).sum())(folded.params)
    assert {*gradient} == {*folded.params}
    np.testing.assert_allclose(quantize(folded, "int8")(X), want, atol=0.1)


def test_a_network_of_transformers():
    t = pytest.importorskip("transformers")
    sizes = dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
    model = anyjax.from_torch(trained(t.ResNetForImageClassification(t.ResNetConfig(**sizes))))
    image = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    folded = fold_batchnorm(model, pixel_values=image)
    assert not any("running" in name for name in folded.state)
    assert_close(
        folded(pixel_values=image).logits, model(pixel_values=image).logits, reduction=2000
    )


class Twice(nn.Module):
    """Something else takes the output of the layer, too."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.layer(x)
        return x + self.norm(x)


class Again(Twice):
    def forward(self, x):
        return self.norm(self.layer(self.layer(x)))


@pytest.mark.parametrize(
    "model, error, message",
    [
        (lambda: anyjax.from_torch(trained(Twice())), WrongValue, "takes the output"),
        (lambda: anyjax.from_torch(trained(Again())), WrongArguments, "no BatchNorm takes"),
        (lambda: anyjax.from_torch(nn.Linear(4, 4).eval()), WrongArguments, "no BatchNorm takes"),
        (lambda: anyjax.from_torch(Twice().train()), WrongArguments, "training mode"),
    ],
)
def test_what_cannot_be_folded(model, error, message):
    with pytest.raises(error, match=message):
        fold_batchnorm(model(), X[:, 0, :4, 0])


def test_other_frameworks():
    tf = pytest.importorskip("tensorflow")
    model = anyjax.from_tensorflow(tf.function(lambda x: x + 1), X)
    with pytest.raises(Unsupported, match="tensorflow"):
        fold_batchnorm(model, X)
