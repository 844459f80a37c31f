"""Constructors: the file that is written for one size builds the others, too."""

import pytest
import torch
from flax import nnx
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import anyjax
from anyjax.flax.codegen.author.evaluate import field_of
from tests.flax.codegen.models import Attention, DoubleConv, drawn, ids
from tests.flax.codegen.running import assert_same_values, loaded, prepared

pytestmark = pytest.mark.sample(every=15)


class Wide(nn.Module):
    """Parameters by name, by expression, by a local variable, with defaults."""

    def __init__(self, features, hidden, heads=2, *, expansion=3, depth=2, eps=1e-5):
        super().__init__()
        inner = expansion * hidden
        self.width = hidden
        self.scale = (hidden // heads) ** -0.5
        self.enter = nn.Linear(features, hidden)
        self.blocks = nn.ModuleList([Attention(hidden, heads) for _ in range(depth)])
        self.mlp = nn.Sequential(nn.Linear(hidden, inner), nn.GELU(), nn.Linear(inner, hidden))
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.gain = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(self.norm(x))
        return self.mlp(x * self.scale) * self.gain + x.view(-1, self.width).mean()


class Halves(nn.Module):
    """A list that is appended to, sizes of which each is another's multiple."""

    def __init__(self, channels, stages):
        super().__init__()
        self.stages = nn.ModuleList()
        for _ in range(stages):
            self.stages.append(DoubleConv(channels, channels))
        self.out = nn.Conv2d(channels, 3 * channels, kernel_size=1)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.out(x)


class Derived(Wide):
    def __init__(self, features, hidden):
        super().__init__(features, hidden, heads=4)
        self.last = nn.Linear(hidden, features)

    def forward(self, x):
        return self.last(super().forward(x))


class Listed(nn.Module):
    """A number that is also the place of a module in a list."""

    def __init__(self, kernel_size=3):
        super().__init__()
        self.kernel_size = kernel_size
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(5)])

    def forward(self, x):
        weight = self.layers[3].weight
        x = self.layers[3](x).tanh() @ weight
        return x * self.kernel_size


class Numbered(nn.Module):
    """Modules that go by numbers in a class that is no list."""

    def __init__(self):
        super().__init__()
        for i in range(3):
            self.add_module(str(i), nn.Linear(6, 6))

    def forward(self, x):
        for layer in self.children():
            x = x + layer(x)
        return x


def test_numbered_modules_of_a_class_are_a_loop():
    module = Numbered().eval()
    text, model = prepared(module, (drawn(2, 6),))
    assert "in self.layers_:" in text
    assert_same_values(module, model, (drawn(3, 6),))


def test_the_place_of_a_module_is_no_number_of_the_author_s():
    module = Listed().eval()
    text, model = prepared(module, (drawn(2, 6),))
    assert "self.layers[3](x)" in text and "self.kernel_size" in text
    assert_same_values(module, model, (drawn(2, 6),))


def test_a_constructor_is_the_author_s():
    text = anyjax.flax.source(Wide(6, 16), drawn(2, 5, 6))
    sizes = "features=6, hidden=16, heads=2, expansion=3, depth=2, eps=1e-05"
    assert f"{sizes}, *, rngs: nnx.Rngs" in text
    assert "nnx.Linear(hidden, expansion * hidden, rngs=rngs)" in text
    assert "for _ in range(depth)" in text


@pytest.mark.parametrize(
    ("cls", "first", "second", "shapes"),
    [
        (Wide, (6, 16), (5, 24, 4), [(2, 5, 6), (3, 4, 5)]),
        (Halves, (4, 2), (6, 3), [(2, 4, 8, 9), (2, 6, 8, 9)]),
        (Derived, (6, 16), (5, 32), [(2, 5, 6), (3, 4, 5)]),
    ],
)
def test_other_sizes_from_one_file(cls, first, second, shapes):
    torch.manual_seed(0)
    file = loaded(anyjax.flax.source(cls(*first), drawn(*shapes[0])))
    for sizes, shape in zip((first, second), shapes):
        module = cls(*sizes).eval()
        model = getattr(file, cls.__name__)(*sizes, rngs=nnx.Rngs(0))
        weights = {k: v.numpy() for k, v in module.state_dict().items()}
        assert_same_values(module, file.load_params(model, weights), (drawn(*shape),))


def llama(**sizes):
    return LlamaForCausalLM(LlamaConfig(**sizes)).eval()


def gpt2(**sizes):
    return GPT2LMHeadModel(GPT2Config(**sizes)).eval()


LLAMA = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6)
LLAMA |= dict(num_key_value_heads=3, head_dim=10, vocab_size=60, rms_norm_eps=1e-5)
WIDER = LLAMA | dict(hidden_size=64, num_hidden_layers=3, head_dim=14, num_key_value_heads=2)
WIDER |= dict(num_attention_heads=8)
GPT2 = dict(n_embd=48, n_layer=2, n_head=6, n_positions=32, vocab_size=60, eos_token_id=1)
GPT2 |= dict(bos_token_id=0)


@pytest.mark.parametrize(
    ("make", "first", "second"),
    [
        (llama, LLAMA, WIDER),
        (gpt2, GPT2, GPT2 | dict(n_embd=32, n_layer=3, n_head=4, n_positions=24)),
    ],
)
def test_other_configurations_from_one_file(make, first, second):
    torch.manual_seed(0)
    module, ones = make(**first), torch.ones(2, 7, dtype=torch.int64)
    file = loaded(
        anyjax.flax.source(module, input_ids=ids(2, 7), attention_mask=ones, use_cache=False)
    )
    for sizes in (first, second):
        module = make(**sizes)
        config = getattr(file, type(module.config).__name__)
        fields = {k: field_of(module.config, k) for k in config.__dataclass_fields__}
        model = getattr(file, type(module).__name__)(config(**fields), rngs=nnx.Rngs(0))
        weights = {k: v.numpy() for k, v in module.state_dict().items()}
        file.load_params(model, weights).eval()
        inputs = ids(3, 9), torch.ones(3, 9, dtype=torch.int64)
        forward = lambda x, mask, m=module: m(x, attention_mask=mask).logits
        assert_same_values(forward, model, inputs)


class Sizes:
    """A configuration."""

    width, eps, batch = 6, 1e-5, False


class Batch(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.BatchNorm1d(config.width)


class Either(nn.Module):
    """One of two classes, which take other arguments."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        if config.batch:
            self.norm = Batch(config)
        else:
            self.norm = nn.LayerNorm(config.width, eps=config.eps)

    def forward(self, x):
        return self.norm(x)


def test_arguments_of_a_class_that_is_not_made():
    text, model = prepared(Either(Sizes()).eval(), (drawn(2, 6),))
    assert "nnx.LayerNorm(config.width, epsilon=config.eps, rngs=rngs)" in text
    assert_same_values(Either(Sizes()), model, (drawn(2, 6),))


class Tree(nn.Module):
    """Holds itself, twice at each depth."""

    def __init__(self, depth):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.inner = nn.ModuleList([Tree(depth - 1) for _ in range(2 * (depth > 0))])

    def forward(self, x):
        return self.layer(x).tanh() + sum(part(x) for part in self.inner)


def test_the_outermost_class_has_the_name():
    module, x = Tree(2), drawn(3, 4)
    text, model = prepared(module, [x])
    assert_same_values(module, model, [x])
    assert text.count("class Tree") == 3


@pytest.mark.parametrize("name", ["Buffer", "nnx", "load_params"])
def test_a_class_hides_nothing_of_the_file(name):
    module, x = nn.Sequential(type(name, (Tree,), {})(0)), drawn(3, 4)
    assert_same_values(module, prepared(module, [x])[1], [x])
