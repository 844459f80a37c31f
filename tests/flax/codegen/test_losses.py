"""Losses inside of a module, as where a model of Hugging Face is given its labels."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import anyjax
from anyjax.errors import Unsupported
from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import assert_same_values, prepared

pytestmark = pytest.mark.sample(every=12)
REDUCTIONS = ("none", "mean", "sum")
LABELS = torch.tensor([0, 4, 2, 1])  # 1 is ignored below
PLACES = torch.arange(4 * 6).reshape(4, 6) % 5
REAL = {  # of values beside values
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": lambda x, y, **how: F.huber_loss(3 * x, y, delta=0.3, **how),
    "smooth_l1": lambda x, y, **how: F.smooth_l1_loss(3 * x, y, beta=0.5, **how),
    "smooth_l1-0": lambda x, y, **how: F.smooth_l1_loss(x, y, beta=0, **how),
    "soft_margin": lambda x, y, **how: F.soft_margin_loss(x, y.sign(), **how),
    "kl_div": lambda x, y, **how: F.kl_div(x.log_softmax(-1), y.softmax(-1).round(), **how),
    "kl_div-logs": lambda x, y, **how: F.kl_div(
        x.log_softmax(-1), y.log_softmax(-1), log_target=True, **how
    ),
    "bce": lambda x, y, **how: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), y.abs(), **how),
    "bce-logits": lambda x, y, **how: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), y.abs(), **how
    ),
    "bce-classes": lambda x, y, **how: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), pos_weight=torch.arange(5.0), **how
    ),
    "cross_entropy": lambda x, y, **how: F.cross_entropy(x, y.softmax(-1), **how),
}
OF_LABELS = {
    "cross_entropy": F.cross_entropy,
    "ignored": lambda x, y, **how: F.cross_entropy(x, y, ignore_index=1, **how),
    "smoothed": lambda x, y, **how: F.cross_entropy(x, y, label_smoothing=0.1, **how),
    "nll": lambda x, y, **how: F.nll_loss(x.log_softmax(1), y, ignore_index=1, **how),
}


class Loss(nn.Module):
    def __init__(self, function, **how):
        super().__init__()
        self.function, self.how = function, how
        self.linear = nn.Linear(5, 5)

    def forward(self, x, target):
        return self.function(self.linear(x), target, **self.how)


class OfPlaces(Loss):
    """Classes are the second dimension, as in segmentation."""

    def forward(self, x, target):
        return self.function(self.linear(x).mT, target, **self.how)


def assert_written(module, *inputs):
    _, model = prepared(module.eval(), inputs)  # values and gradients are compared there, too
    assert_same_values(module, model, inputs)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")  # of F.kl_div
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", REAL)
def test_of_values(name, reduction):
    assert_written(Loss(REAL[name], reduction=reduction), drawn(4, 5), drawn(4, 5))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", OF_LABELS)
def test_of_labels(name, reduction):
    assert_written(Loss(OF_LABELS[name], reduction=reduction), drawn(4, 5), LABELS)
    assert_written(OfPlaces(OF_LABELS[name], reduction=reduction), drawn(4, 6, 5), PLACES)


def test_similarity():
    assert_written(Loss(F.cosine_similarity), drawn(4, 5), drawn(4, 5))
    assert_written(Loss(lambda x, y: F.cosine_similarity(x, y, 0, 0.1)), drawn(4, 5), drawn(4, 5))


@pytest.mark.parametrize("function", [F.cosine_similarity, lambda x, y: F.normalize(x * y)])
def test_gradients_of_the_lengths_of_zeros(function):
    zeros = torch.zeros(1, 5)
    assert_written(Loss(function), drawn(4, 5), torch.cat([drawn(3, 5), zeros]))


class Kept(nn.Module):
    """A layer that is called norm, kept from zero."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(5)

    def forward(self, x):
        return self.norm(x).clamp(min=0.1)


def test_a_layer_called_norm_is_no_length():
    text = anyjax.flax.source(Kept(), drawn(4, 5))
    assert "jnp.maximum(self.norm(x), 0.1)" in text


def test_labels_of_a_language_model():
    options = {"vocab_size": 99, "hidden_size": 16, "intermediate_size": 24}
    options |= {"num_hidden_layers": 1, "num_attention_heads": 2, "use_cache": False}
    lm = LlamaForCausalLM(LlamaConfig(**options)).eval()
    ids = torch.randint(99, (2, 8), generator=torch.Generator().manual_seed(0))
    text = str(anyjax.flax.source(lm, input_ids=ids, labels=ids.where(ids > 20, -100)))
    assert "import optax" in text and "loss = mean_cross_entropy(" in text


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
def test_weights_of_classes_are_refused(loss):
    function = lambda x, y: getattr(F, loss)(x, y, weight=torch.arange(5.0))
    with pytest.raises(Unsupported, match="weights of classes"):
        anyjax.flax.source(Loss(function), drawn(4, 5), LABELS)
