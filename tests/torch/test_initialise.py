"""Draws of reset_parameters and of transformers' initialisers have torch's own statistics."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

nn = torch.nn
KEY = jax.random.key(3)
pytestmark = pytest.mark.sample(every=3)

LAYERS = {
    "linear": lambda: nn.Linear(96, 80),
    "bilinear": lambda: nn.Bilinear(20, 18, 22),
    "conv1d": lambda: nn.Conv1d(24, 40, 5),
    "conv2d": lambda: nn.Conv2d(16, 32, 3, groups=2),
    "conv_transpose2d": lambda: nn.ConvTranspose2d(16, 24, 3),
    "conv3d": lambda: nn.Conv3d(6, 40, 3),
    "embedding": lambda: nn.Embedding(90, 64, padding_idx=3),
    "embedding_bag": lambda: nn.EmbeddingBag(90, 64),
    "lstm": lambda: nn.LSTM(24, 40, 2, bidirectional=True, proj_size=20),
    "gru": lambda: nn.GRU(24, 40),
    "rnn_cell": lambda: nn.RNNCell(40, 60),
    "attention": lambda: nn.MultiheadAttention(48, 4),
    "attention_of_others": lambda: nn.MultiheadAttention(48, 4, kdim=40, vdim=44, add_bias_kv=True),
    "encoder_layer": lambda: nn.TransformerEncoderLayer(48, 4, 96),
    "layer_norm": lambda: nn.LayerNorm(32),
    "rms_norm": lambda: nn.RMSNorm(32),
    "batch_norm": lambda: nn.BatchNorm2d(32),
    "group_norm": lambda: nn.GroupNorm(4, 32),
    "instance_norm": lambda: nn.InstanceNorm1d(32, affine=True),
    "prelu": lambda: nn.PReLU(8),
    "half": lambda: nn.Linear(96, 80, dtype=torch.bfloat16),
}
# Of transformers, whose models draw as their configurations say.
MODELS = ("llama", "gpt2", "bert", "vit", "t5", "mixtral")
SAMPLES = 8  # modules of torch, and keys


def hf(name: str):
    t = pytest.importorskip("transformers")
    sizes = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=80)
    image = dict(image_size=32, patch_size=8)
    configs = {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(vocab_size=99, **sizes)),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(vocab_size=99, n_embd=48, n_layer=2, n_head=4, n_positions=64)
        ),
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(vocab_size=99, **sizes)),
        "vit": lambda: t.ViTForImageClassification(t.ViTConfig(**sizes, **image)),
        "t5": lambda: t.T5ForConditionalGeneration(
            t.T5Config(vocab_size=99, d_model=48, d_kv=12, d_ff=80, num_layers=2, num_heads=4)
        ),
        "mixtral": lambda: t.MixtralForCausalLM(
            t.MixtralConfig(vocab_size=99, num_local_experts=4, num_key_value_heads=2, **sizes)
        ),
    }
    return configs[name]


def assert_same_statistics(make, model=None):
    """Compares samples of torch's modules with draws of as many keys: constants, bounds, spread."""
    torch.manual_seed(0)
    modules = [make() for _ in range(SAMPLES)]
    model = anyjax.from_torch(modules[0]) if model is None else model
    keys = jax.random.split(KEY, SAMPLES)
    draws = [model.init(key) for key in keys]
    assert set(draws[0]) == {name for name, _ in modules[0].named_parameters()}
    for name, parameter in modules[0].named_parameters():
        theirs = np.stack([dict(m.named_parameters())[name].detach().float() for m in modules])
        ours = np.stack([np.asarray(draw[name], np.float32) for draw in draws])
        assert draws[0][name].shape == tuple(parameter.shape)
        if theirs.min() == theirs.max():
            assert (ours == theirs).all(), name
            continue
        assert len({draw.tobytes() for draw in ours}) == SAMPLES, name
        assert ((theirs == 0).all(0) == (ours == 0).all(0)).all(), name  # rows of padding
        n = theirs[theirs != 0].size
        # Each spread of n draws is off by std / sqrt(2 n) of normal numbers, less of uniform ones;
        # five times that of a difference of two is once in 10**6.
        assert abs(ours.std() / theirs.std() - 1) < 5 / np.sqrt(n), name
        assert abs(ours.mean() - theirs.mean()) < 5 * theirs.std() * np.sqrt(2 / n), name
        assert_same_range(ours, theirs, name)


def assert_same_range(ours, theirs, name):
    """A uniform draw stays inside of its bounds and comes close to them; a normal one has tails."""
    ratio = np.abs(theirs).max() / theirs.std()
    if ratio < 1.8:  # sqrt(3) of a uniform distribution
        bound = np.abs(theirs).max()
        n = theirs.size
        assert abs(np.abs(ours).max() - bound) < 20 * bound / n, name
    else:
        assert np.abs(ours).max() / ours.std() > 1.8, name


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_layers_draw_as_torch_does(make):
    assert_same_statistics(make)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_transformers_draw_as_they_do(name):
    assert_same_statistics(hf(name))


def test_another_distribution_is_seen():
    def wide():
        layer = nn.Linear(96, 80)
        nn.init.normal_(layer.weight, std=layer.weight.std().item())
        return layer

    model = anyjax.from_torch(nn.Linear(96, 80))
    with pytest.raises(AssertionError, match="weight"):
        assert_same_statistics(wide, model)
    scaled = lambda: nn.Linear(90, 80)
    with pytest.raises(AssertionError):
        assert_same_statistics(scaled, model)


def test_dtypes_are_the_models_own():
    model = anyjax.from_torch(nn.Linear(64, 64))
    half = model.with_params({k: x.astype("bfloat16") for k, x in model.params.items()})
    params = half.init(KEY)
    assert {str(x.dtype) for x in params.values()} == {"bfloat16"}
    assert 0.9 < float(params["weight"].std()) * 64**0.5 * 3**0.5 < 1.1


def test_tied_weights_stay_tied():
    model = anyjax.from_torch(hf("gpt2")())
    params = model.init(KEY)
    assert "lm_head.weight" not in params
    new = model.with_params(params)
    module = new.to_torch()
    assert module.lm_head.weight is module.transformer.wte.weight
    assert_close(params["transformer.wte.weight"], module.lm_head.weight.detach().numpy())


def test_a_tied_weight_is_drawn_as_its_first_module_draws():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(60, 50, padding_idx=0), nn.Linear(50, 60)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    params = anyjax.from_torch(Tied()).init(KEY)
    weight = params["embed.weight"]
    assert set(params) == {"embed.weight", "head.bias"}
    assert not np.any(weight[0]) and 0.95 < weight[1:].std() < 1.05


def test_frozen_weights_and_buffers_are_state():
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    module[0].weight.requires_grad_(False)
    module.register_buffer("mask", torch.full((2,), 7.0))
    params, state = anyjax.from_torch(module).init(KEY, mutable=True)
    assert set(params) == {"0.bias", "1.weight", "1.bias"}
    assert state["mask"].tolist() == [7, 7] and state["1.running_var"].tolist() == [1, 1]


def test_writes_by_data_and_new_parameters():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.zeros(50)), nn.Parameter(torch.zeros(50))

        def reset_parameters(self):
            self.a.data.normal_(mean=3.0, std=0.1)
            self.b = nn.Parameter(torch.rand(50) + 5)

        def forward(self, x):
            return x * self.a + self.b

    params = anyjax.from_torch(Own()).init(KEY)
    assert 2.5 < params["a"].min() < params["a"].max() < 3.5
    assert 5 <= params["b"].min() < params["b"].max() <= 6


def test_other_draws_of_torch_nn_init():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.t = nn.Parameter(torch.zeros(8, 8)), nn.Parameter(torch.zeros(4000))
            self.d, self.s = nn.Parameter(torch.zeros(4, 4, 3)), nn.Parameter(torch.zeros(40, 30))

        def reset_parameters(self):
            nn.init.orthogonal_(self.q)
            nn.init.trunc_normal_(self.t, std=2.0, a=-1.0, b=3.0)
            nn.init.dirac_(self.d)
            nn.init.sparse_(self.s, sparsity=0.5)

        def forward(self, x):
            return x

    params = anyjax.from_torch(Own()).init(KEY)
    assert_close(params["q"] @ params["q"].T, np.eye(8), reduction=8)
    assert -1 <= params["t"].min() < -0.9 and 2.9 < params["t"].max() <= 3
    assert_close(params["d"], nn.init.dirac_(torch.zeros(4, 4, 3)).numpy())
    assert ((np.asarray(params["s"]) == 0).sum(0) == 20).all()


def test_a_checkpoint_whose_module_holds_no_weights():
    pytest.importorskip("transformers")
    model = anyjax.from_pretrained("examples/tiny-llama")
    params = model.init(KEY)
    assert set(params) == set(model.params)
    assert 0.03 < params["model.embed_tokens.weight"].std() < 0.05
    assert model(np.array([[1, 5]])).logits.shape == (1, 2, 2048)  # its module is as it was


def test_modules_that_a_function_refers_to():
    linear = nn.Linear(3, 2)
    model = anyjax.from_torch(lambda x: linear(x))
    before = linear.weight.detach().clone()
    assert set(model.init(KEY)) == {"linear.weight", "linear.bias"}
    assert torch.equal(before, linear.weight)
