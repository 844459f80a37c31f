"""Classes that a file brings along."""

import jax
import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as F
from flax import nnx
from torch import nn

import anyjax
from tests.flax.codegen.models import CNN, drawn
from tests.flax.codegen.running import assert_same_gradients, assert_same_values, loaded, prepared
from tests.flax.codegen.style.test_linen import assert_same_slopes
from tests.flax.codegen.style.test_linen import prepared as linen
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=15)


class Normed(nn.Module):
    """Statistics kept with another momentum, without one, and without weights of their own."""

    def __init__(self):
        super().__init__()
        self.usual, self.slow = nn.BatchNorm2d(3), nn.BatchNorm2d(3, momentum=0.01, affine=False)
        self.every = nn.BatchNorm2d(3, momentum=None)

    def forward(self, x):
        return self.usual(x), self.slow(x), self.every(x)


@pytest.mark.parametrize("cls", [CNN, Normed])
@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_running_statistics_are_torchs(style, cls):
    """After three steps on few values, where a sample's variance is not that of the batch."""
    torch.manual_seed(0)
    module = cls().eval()
    steps = [drawn(2, 3, 16, 16) if cls is CNN else drawn(2, 3, 2, 2) * i + i for i in (1, 2, 3)]
    text = anyjax.flax.source(module, steps[0], style=style)
    file = loaded(text)
    weights = lambda: {k: x.numpy() for k, x in module.state_dict().items()}
    initial = {k: x.copy() for k, x in weights().items()}
    if style == "nnx":
        model = file.load_params(getattr(file, cls.__name__)(rngs=nnx.Rngs(0)), initial)
        model.train()
        for x in steps:
            model(jnp.asarray(x.numpy()))
        model.eval()
        statistics = nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))
        expected = lambda: nnx.to_pure_dict(
            nnx.state(file.load_params(nnx.clone(model), weights()), nnx.BatchStat)
        )
        apply = model
    else:
        model, variables = getattr(file, cls.__name__)(), file.load_params(initial)
        for x in steps:
            how = dict(mutable="batch_stats", rngs={"dropout": jax.random.key(0)})
            batch = jnp.asarray(x.numpy())
            variables |= model.apply(variables, batch, deterministic=False, **how)[1]
        statistics = variables["batch_stats"]
        expected = lambda: file.load_params(weights())["batch_stats"]
        apply = lambda x: model.apply(variables, x)
    module.train()
    with torch.no_grad():
        for x in steps:
            module(x)
    jax.tree.map(lambda x, y: assert_close(x, y, reduction=1024), statistics, expected())
    module.eval()
    assert_same_values(module, apply, steps[:1])


class Parts(nn.Module):
    """A list of one value, and one that stands for a whole number elsewhere."""

    def __init__(self):
        super().__init__()
        self.place, self.shift = 0, nn.ZeroPad2d((0, 0, 1, -1))

    def forward(self, x):
        (one,) = x[:, :1].unbind(1)
        return one + 1, self.shift(x)[:, self.place :].tile(2, 1, 1)


def test_lists_of_one_value_and_shifts():
    module, inputs = Parts().eval(), (drawn(3, 2, 4),)
    text, model = prepared(module, inputs)
    assert "jax.lax.pad(x, 0.0," in text
    assert_same_values(module, model, inputs)


class Padded(nn.Module):
    """An embedding whose weights the head has, too, and one that is looked up by a function."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8, padding_idx=3)
        self.table = nn.Parameter(torch.randn(12, 8))
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens) + F.embedding(tokens, self.table, padding_idx=1))


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_looking_padding_up_has_no_gradient(style):
    """The row gets what the head and other tokens send it, and nothing of its own."""
    torch.manual_seed(0)
    module, inputs = Padded().eval(), (torch.arange(12).reshape(2, 6),)
    if style == "nnx":
        text, model = prepared(module, inputs)
        assert "PaddedEmbed(12, 8, padding_idx=3" in text
        assert_same_values(module, model, inputs)
        assert_same_gradients(module, model, inputs)
        return
    file, model, variables = linen(module, inputs)
    assert file.PaddedEmbed.__doc__.startswith("As PyTorch's")
    assert_same_values(module, lambda *x: model.apply(variables, *x), inputs)
    assert_same_slopes(module, file, model, variables, inputs)


def test_a_row_of_padding_alone():
    torch.manual_seed(0)
    module, inputs = nn.Sequential(nn.Embedding(5, 4, padding_idx=2)).eval(), (torch.arange(5),)
    _, model, variables = linen(module, inputs)
    loss = lambda params: model.apply({"params": params}, jnp.arange(5)).sum()
    (slopes,) = jax.tree.leaves(jax.grad(loss)(variables["params"]))
    assert slopes.sum(1).tolist() == [4, 4, 0, 4, 4]


class Still(nn.Module):
    """A region without gradients that ends in a permutation."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Parameter(torch.randn(6, 4)), nn.Linear(6, 3)

    def forward(self, x):
        with torch.no_grad():
            found = self.table.t()[x].permute(0, 2, 1).transpose(1, 2)
        with torch.no_grad():
            kept = F.dropout(found * self.table.sum(), 0.1, self.training)
        return self.out(found + kept)


def test_regions_without_gradients():
    torch.manual_seed(0)
    module, inputs = Still().eval(), (torch.arange(8).reshape(2, 4) % 4,)
    text, model = prepared(module, inputs)
    model.eval()
    assert text.count("stop_gradient") == 2
    assert_same_values(module, model, inputs)
    assert_same_gradients(module, model, inputs)
