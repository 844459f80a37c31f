"""Source code of plain modules: values, gradients, other sizes, weights that are drawn."""

import numpy as np
import pytest
import torch
from flax import nnx

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from tests.flax.codegen.models import CASES, MLP, drawn
from tests.flax.codegen.running import (
    arrays,
    assert_same_gradients,
    assert_same_values,
    leaves,
    loaded,
    prepared,
)

pytestmark = pytest.mark.sample(every=15)


@pytest.mark.parametrize("name", CASES)
def test_plain_modules(name):
    cls, inputs, other_inputs = CASES[name]
    torch.manual_seed(0)
    module = cls().eval()
    for submodule in module.modules():
        if isinstance(submodule, torch.nn.BatchNorm2d):
            submodule.running_mean.normal_()
            submodule.running_var.uniform_(0.5, 2)
    text, model = prepared(module, inputs)
    model.eval()
    assert_same_values(module, model, inputs)
    assert_same_values(module, model, other_inputs)
    assert_same_gradients(module, model, inputs)
    fresh = getattr(loaded(text), cls.__name__)(rngs=nnx.Rngs(1))
    assert all(np.isfinite(x).all() for x in leaves(fresh(*arrays(inputs))))


def test_training_mode():
    """Dropout draws, and BatchNorm takes the batch's own statistics and keeps them."""
    cls, inputs, _ = CASES["cnn"]
    module = cls()
    _, model = prepared(module, inputs)
    model.train()
    initial = np.asarray(model.bn1.mean[...])
    first, second = (np.asarray(model(*arrays(inputs))) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    assert np.abs(model.bn1.mean[...] - initial).max() > 1e-3
    assert module.training


def test_dropout_as_a_function_is_kept_for_training():
    cls, inputs, _ = CASES["pooled"]
    _, model = prepared(cls().eval(), inputs)
    model.train()
    assert np.abs(model(*arrays(inputs))[0] - model(*arrays(inputs))[0]).max() > 1e-3


class Unbatched(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2)


def test_pictures_without_a_batch_are_refused():
    with pytest.raises(Unsupported, match="without a batch"):
        anyjax.flax.source(Unbatched(), drawn(3, 8, 8))


class Rounds(torch.nn.Module):
    def forward(self, x):
        return torch.round(x, decimals=2)


def test_an_argument_that_no_rule_reads_is_refused():
    with pytest.raises(Unsupported, match="decimals=2"):
        anyjax.flax.source(Rounds(), drawn(2, 3))


def test_what_a_reader_sees():
    text = anyjax.flax.source(MLP(), drawn(5, 8))
    assert "import anyjax" not in text and "torch." not in text
    assert "x = self.drop(nnx.relu(layer(x)))" in text
    assert "self.layers = nnx.List(" in text
    assert max(map(len, text.splitlines())) <= 100


class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        layers = nn.Identity(), nn.Linear(3, 4), nn.Identity(), nn.Linear(4, 3), nn.Identity()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_an_identity_in_a_chain(style):
    assert "lambda x: x" in anyjax.flax.source(Chain(), drawn(2, 3), style=style)


class Heads(torch.nn.Module):
    """The root of its heads' width is how many there are."""

    def __init__(self):
        super().__init__()
        self.width, self.heads = 16, 4

    def divided(self, x):
        return x.view(*x.shape[:2], self.heads, self.width)

    def forward(self, x):
        x = x / self.width**0.5
        return self.divided(x)


def test_a_size_is_no_float_of_its_value():
    text = anyjax.flax.source(Heads(), drawn(2, 3, 64))
    assert "self.width**0.5" in text and "self.heads, self.width" in text


def test_bad_input():
    with pytest.raises(WrongArguments, match=r"no torch\.nn\.Module"):
        anyjax.flax.source(lambda x: x, drawn(2, 3))
    with pytest.raises(WrongArguments, match="style"):
        anyjax.flax.source(MLP(), drawn(5, 8), style="haiku")


class Decides(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Unwritten(torch.nn.Module):
    def forward(self, x):
        return torch.special.airy_ai(x)


class Vmapped(torch.nn.Module):
    def forward(self, x):
        return torch.vmap(lambda row: row.view(2, -1).sum(-1))(x)


def test_what_cannot_be_written_names_its_line():
    with pytest.raises(Unsupported, match=r"torch\.export refuses Decides"):
        anyjax.flax.source(Decides(), drawn(2, 3))
    with pytest.raises(Unsupported, match=r"(?s)special_airy_ai.*test__source.py:\d+"):
        anyjax.flax.source(Unwritten(), drawn(2, 3))
    with pytest.raises(Unsupported, match=r"(?s)batch_dim.*test__source.py:\d+"):
        anyjax.flax.source(Vmapped(), drawn(3, 4))


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_no_example(style):
    with pytest.raises(WrongArguments) as raised:
        anyjax.flax.source(torch.nn.Linear(4, 2), style=style)
    assert raised.value.what == "no example of what Linear takes"
    assert raised.value.where == "forward(input)"
    assert raised.value.do.endswith("anyjax.flax.source(module, input)")


@pytest.mark.parametrize("example", [(drawn(3, 5),), (drawn(3, 4), 1)])
def test_an_example_that_the_module_does_not_take(example):
    with pytest.raises(WrongArguments, match=r"(?s)fails on this example.*why.*do"):
        anyjax.flax.source(torch.nn.Linear(4, 2), *example)
