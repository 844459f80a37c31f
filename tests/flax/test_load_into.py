"""Hand-written flax modules get torch's weights, and compute what torch does."""

from __future__ import annotations

import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import tojax
from tests.tolerance import assert_close
from tojax.errors import BadCheckpoint, ForwardFailed, WrongArguments, WrongWeights
from tojax.flax import load_into

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def lively(module):
    """The module with random numbers everywhere: fresh norms and biases are all alike."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, x in module.state_dict().items():
            if x.is_floating_point():
                x.copy_(torch.rand(x.shape) + 0.5 if "var" in name else torch.randn(x.shape) * 0.4)
    return module.eval()


def same(got, module, x, reduction=256):
    with torch.no_grad():
        want = module(torch.from_numpy(np.asarray(x)))
    want = (want[0] if isinstance(want, tuple) else want).numpy()
    assert_close(np.asarray(got), want, reduction=reduction)


class Mlp(nnx.Module):
    def __init__(self, rngs, *sizes):
        pairs = itertools.pairwise(sizes)
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairs])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)


def torch_mlp(*sizes):
    steps = []
    for a, b in itertools.pairwise(sizes):
        steps += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return lively(torch.nn.Sequential(*steps[:-1]))


@pytest.mark.parametrize("sizes", [(3, 8, 5), (8, 8, 8, 8)], ids=["unlike", "square"])
@pytest.mark.parametrize("source", ["module", "state dict", "numpy", "model"])
def test_mlp(sizes, source):
    theirs, x = torch_mlp(*sizes), normal(4, sizes[0])
    given = {
        "module": lambda: theirs,
        "state dict": theirs.state_dict,
        "numpy": lambda: {k: v.numpy() for k, v in theirs.state_dict().items()},
        "model": lambda: tojax.from_torch(theirs),
    }[source]()
    ours = Mlp(nnx.Rngs(0), *sizes)
    filled, report = load_into(ours, given)
    assert filled is ours
    same(ours(x), theirs, x)
    assert report["layers/0/kernel"].torch == "0.weight"
    assert {m.layout for m in report} == {"transposed", "as it is"}


class LinenMlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8)(x))
        x = nn.relu(nn.Dense(8)(x))
        return nn.Dense(8)(x)


@pytest.mark.parametrize("how", ["variables", "example", "both"])
def test_linen_mlp(how):
    theirs, x, module = torch_mlp(8, 8, 8, 8), normal(4, 8), LinenMlp()
    given = {}
    if how != "variables":
        given["example"] = (x,)
    if how != "example":
        given["variables"] = module.init(jax.random.key(0), x)
    variables, report = load_into(module, theirs, **given)
    same(module.apply(variables, x), theirs, x)
    assert report["Dense_1/kernel"].torch == "2.weight"
    assert report["Dense_1/kernel"].how == "order"
    assert ("outputs differ by" in report.checked) == (how != "variables")


class TorchCnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.BatchNorm2d(6)
        self.conv2 = torch.nn.Conv2d(6, 4, 3, stride=2, padding=1, bias=False)
        self.fc = torch.nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(torch.relu(self.conv2(x)).flatten(1))


class Cnn(nnx.Module):
    def __init__(self, rngs, channels_first=False):
        pad = ((1, 1), (1, 1))
        self.conv1 = nnx.Conv(3, 6, (3, 3), padding=pad, rngs=rngs)
        self.bn1 = nnx.BatchNorm(6, rngs=rngs)
        self.conv2 = nnx.Conv(6, 4, (3, 3), 2, padding=pad, use_bias=False, rngs=rngs)
        self.fc = nnx.Linear(64, 5, rngs=rngs)
        self.channels_first = channels_first

    def __call__(self, x):
        x = nnx.relu(self.bn1(self.conv1(x)))
        x = nnx.relu(self.conv2(x))
        x = jnp.moveaxis(x, -1, 1) if self.channels_first else x
        return self.fc(x.reshape(x.shape[0], -1))


@pytest.mark.parametrize("channels_first", [False, True])
def test_rows_after_a_flattened_map_are_in_the_order_of_the_outputs(channels_first):
    theirs, ours, x = lively(TorchCnn()), Cnn(nnx.Rngs(0), channels_first), normal(2, 8, 8, 3)
    _, report = load_into(ours, theirs, example=(x,))
    ours.eval()
    same(ours(x), theirs, np.moveaxis(x, -1, 1))
    rows = "transposed" if channels_first else "transposed, rows of 4 channels last"
    assert (report["fc/kernel"].layout, report["fc/kernel"].how) == (rows, "agreement")
    assert report["conv1/kernel"].layout == "spatial axes first"
    assert report["bn1/mean"].torch == "bn1.running_mean"
    assert report.left_out == (("bn1.num_batches_tracked", "counts training steps"),)


def test_a_flattened_map_without_an_example_is_ambiguous():
    before = nnx.state(ours := Cnn(nnx.Rngs(0)))
    with pytest.raises(WrongWeights, match=r"(?s)fc: .*transposed.* \| .*4 channels last.*match="):
        load_into(ours, lively(TorchCnn()).state_dict())
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(ours))
    match = {"fc": ("fc", "transposed, rows of 4 channels last")}
    theirs, x = lively(TorchCnn()), normal(2, 8, 8, 3)
    _, report = load_into(ours, theirs.state_dict(), match=match)
    ours.eval()
    same(ours(x), theirs, np.moveaxis(x, -1, 1))
    assert report["fc/kernel"].how == "given"


class LinenCnn(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(6, (3, 3), padding=1)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        x = nn.relu(nn.Conv(4, (3, 3), 2, padding=1, use_bias=False)(x))
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


def test_linen_cnn():
    theirs, module, x = lively(TorchCnn()), LinenCnn(), normal(2, 8, 8, 3)
    variables, report = load_into(module, theirs, example=(x,), kwargs={"train": False})
    same(module.apply(variables, x, train=False), theirs, np.moveaxis(x, -1, 1))
    assert report["Dense_0/kernel"].how == "agreement"


CONVOLUTIONS = {
    "1d": (torch.nn.Conv1d(4, 6, 3, padding=1), dict(kernel_size=(3,), padding=1)),
    "3d": (torch.nn.Conv3d(4, 6, 3, padding=1), dict(kernel_size=(3,) * 3, padding=1)),
    "grouped": (
        torch.nn.Conv2d(4, 6, 3, padding=1, groups=2),
        dict(kernel_size=(3, 3), padding=1, feature_group_count=2),
    ),
    "depthwise": (
        torch.nn.Conv2d(4, 8, (3, 5), groups=4),
        dict(kernel_size=(3, 5), padding="VALID", feature_group_count=4),
    ),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind):
    theirs, options = CONVOLUTIONS[kind]
    theirs = lively(theirs)
    ours = nnx.Conv(theirs.in_channels, theirs.out_channels, rngs=nnx.Rngs(0), **options)
    x = normal(2, *[8] * len(theirs.kernel_size), 4)
    load_into(ours, theirs, example=(x,))
    with torch.no_grad():
        want = theirs(torch.from_numpy(np.moveaxis(x, -1, 1))).numpy()
    assert_close(np.asarray(ours(x)), np.moveaxis(want, 1, -1), reduction=256)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("outputs", [4, 6])
def test_transposed_convolution(swapped, outputs):
    theirs = lively(torch.nn.ConvTranspose2d(4, outputs, 3, stride=2))
    options = dict(strides=2, padding="VALID", transpose_kernel=swapped)
    ours = nnx.ConvTranspose(4, outputs, (3, 3), rngs=nnx.Rngs(0), **options)
    x = normal(2, 5, 5, 4)
    load_into(ours, theirs, example=(x,))
    linen = nn.ConvTranspose(outputs, (3, 3), (2, 2), "VALID", transpose_kernel=swapped)
    variables, _ = load_into(linen, theirs, example=(x,))
    np.testing.assert_array_equal(variables["params"]["kernel"], ours.kernel[...])


class TorchBlock(torch.nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(a, b, 3, 2, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(b)
        self.conv2 = torch.nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(b)
        self.downsample = torch.nn.Sequential(
            torch.nn.Conv2d(a, b, 1, 2, bias=False), torch.nn.BatchNorm2d(b)
        )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class TorchResNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = torch.nn.Sequential(TorchBlock(4, 4), TorchBlock(4, 4))
        self.layer2 = torch.nn.Sequential(TorchBlock(4, 8))
        self.fc = torch.nn.Linear(8, 3)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(x.mean((2, 3)))


class Block(nnx.Module):
    def __init__(self, a, b, rngs):
        conv = lambda a, k, s, p: nnx.Conv(a, b, (k, k), s, padding=p, use_bias=False, rngs=rngs)
        self.conv_a, self.conv_b = conv(a, 3, 2, 1), conv(b, 3, 1, 1)
        self.norm_a, self.norm_b = nnx.BatchNorm(b, rngs=rngs), nnx.BatchNorm(b, rngs=rngs)
        self.shortcut_conv = conv(a, 1, 2, 0)
        self.shortcut_norm = nnx.BatchNorm(b, rngs=rngs)

    def __call__(self, x):
        y = self.norm_b(self.conv_b(nnx.relu(self.norm_a(self.conv_a(x)))))
        return nnx.relu(y + self.shortcut_norm(self.shortcut_conv(x)))


class ResNet(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(3, 4, (3, 3), padding=1, rngs=rngs)
        self.stage0 = nnx.List([Block(4, 4, rngs), Block(4, 4, rngs)])
        self.stage1 = nnx.List([Block(4, 8, rngs)])
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        x = self.first(x)
        for block in [*self.stage0, *self.stage1]:
            x = block(x)
        return self.head(x.mean((1, 2)))


def test_resnet_of_other_names_by_agreement_of_its_blocks():
    theirs, ours, x = lively(TorchResNet()), ResNet(nnx.Rngs(0)), normal(2, 16, 16, 3)
    _, report = load_into(ours, theirs, example=(x,))
    ours.eval()
    same(ours(x), theirs, np.moveaxis(x, -1, 1))
    assert report["stage0/1/norm_b/scale"].torch == "layer1.1.bn2.weight"
    assert report["stage0/1/norm_b/scale"].how == "agreement"
    assert report["stage1/0/shortcut_conv/kernel"].how == "shape"


class Encoder(nnx.Module):
    """An encoder layer with norms after the sums, as torch's has by default."""

    def __init__(self, rngs, width=8, heads=2):
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 16, rngs=rngs)
        self.down = nnx.Linear(16, width, rngs=rngs)
        norm = lambda: nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.after_attention, self.after_mlp = norm(), norm()

    def __call__(self, x):
        x = self.after_attention(x + self.attention(x))
        return self.after_mlp(x + self.down(nnx.relu(self.up(x))))


def test_encoder_with_packed_attention():
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    theirs, ours, x = lively(theirs), Encoder(nnx.Rngs(0)), normal(2, 5, 8)
    _, report = load_into(ours, theirs, example=(x,))
    same(ours(x), theirs, x)
    assert report["attention/key/kernel"].torch == "self_attn.in_proj_weight[8:16]"
    assert report["attention/out/kernel"].layout == "transposed, reshaped"
    assert report["after_mlp/scale"].torch == "norm2.weight"
    assert report["after_mlp/scale"].how == "agreement"


def test_encoder_decides_by_itself_on_random_inputs():
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    theirs, ours, x = lively(theirs), Encoder(nnx.Rngs(0)), normal(2, 5, 8)
    _, report = load_into(ours, theirs)
    same(ours(x), theirs, x)
    assert report["after_mlp/scale"].how == "agreement"


def test_multi_head_attention_of_linen_from_projections_and_from_packed_ones():
    theirs, x = lively(torch.nn.MultiheadAttention(8, 2, batch_first=True)), normal(2, 5, 8)
    module = nn.MultiHeadDotProductAttention(2)
    variables, _ = load_into(module, theirs, example=(x,), torch_example=(x, x, x))
    with torch.no_grad():
        want = theirs(*[torch.from_numpy(x)] * 3)[0].numpy()
    assert_close(np.asarray(module.apply(variables, x)), want, reduction=64)
    packed = theirs.state_dict()
    weights, biases = packed["in_proj_weight"].chunk(3), packed["in_proj_bias"].chunk(3)
    apart = {f"{n}_proj.weight": w for n, w in zip("qkv", weights)}
    apart |= {f"{n}_proj.bias": b for n, b in zip("qkv", biases)}
    apart |= {f"o_proj.{x}": packed[f"out_proj.{x}"] for x in ("weight", "bias")}
    again, _ = load_into(module, apart, variables=variables)
    jax.tree.map(np.testing.assert_array_equal, again, variables)


class Fused(nnx.Module):
    def __init__(self, rngs):
        self.qkv = nnx.Linear(8, 24, rngs=rngs)
        self.out = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        heads = [h.reshape(2, 5, 2, 4) for h in jnp.split(self.qkv(x), 3, -1)]
        return self.out(jax.nn.dot_product_attention(*heads).reshape(2, 5, 8))


@pytest.mark.parametrize("apart", [False, True])
def test_fused_projection(apart):
    theirs, x = lively(torch.nn.MultiheadAttention(8, 2, batch_first=True)), normal(2, 5, 8)
    weights = theirs.state_dict()
    if apart:
        for leaf in ("weight", "bias"):
            parts = weights.pop(f"in_proj_{leaf}").chunk(3)
            weights |= {f"{n}_proj.{leaf}": p for n, p in zip("qkv", parts)}
    ours = Fused(nnx.Rngs(0))
    load_into(ours, weights)
    with torch.no_grad():
        want = theirs(*[torch.from_numpy(x)] * 3)[0].numpy()
    assert_close(np.asarray(ours(x)), want, reduction=64)


CELLS = [nnx.LSTMCell, nnx.OptimizedLSTMCell, nn.LSTMCell, nn.OptimizedLSTMCell]
CELLS += [nn.GRUCell, nnx.GRUCell, nn.SimpleCell, nnx.SimpleCell]


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c.__module__.split('.')[1]}-{c.__name__}")
def test_recurrent(cell):
    kind = {"L": "LSTM", "O": "LSTM", "G": "GRU", "S": "RNN"}[cell.__name__[0]]
    theirs, x = lively(getattr(torch.nn, kind)(3, 4, batch_first=True)), normal(2, 6, 3)
    if cell is nnx.GRUCell:  # it has no bias there
        theirs.bias_hh_l0.data[8:] = 0
    if issubclass(cell, nnx.Module):
        ours = nnx.RNN(cell(3, 4, rngs=nnx.Rngs(0)))
        load_into(ours, theirs, example=(x,))
        same(ours(x), theirs, x)
    else:
        module = nn.RNN(cell(4))
        variables, _ = load_into(module, theirs, example=(x,))
        same(module.apply(variables, x), theirs, x)


def test_a_bias_that_a_cell_cannot_hold_is_an_error():
    theirs = lively(torch.nn.GRU(3, 4, batch_first=True))
    with pytest.raises(WrongWeights, match=r"bias_hh_l0\[8:\]"):
        load_into(nnx.RNN(nnx.GRUCell(3, 4, rngs=nnx.Rngs(0))), theirs)


class TwoWays(nnx.Module):
    def __init__(self, rngs):
        cell = lambda n: nnx.RNN(nnx.OptimizedLSTMCell(n, 4, rngs=rngs))
        self.lower = nnx.Bidirectional(cell(3), cell(3))
        self.upper = nnx.Bidirectional(cell(8), cell(8))

    def __call__(self, x):
        return self.upper(self.lower(x))


def test_two_layers_in_both_directions():
    theirs = lively(torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True))
    ours, x = TwoWays(nnx.Rngs(0)), normal(2, 6, 3)
    _, report = load_into(ours, theirs, example=(x,))
    same(ours(x), theirs, x)
    name = "upper/backward_rnn/cell/dense_i/kernel"
    assert report[name].torch == "weight_ih_l1_reverse"


class TorchTied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.ln_f = torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8)
        self.lm_head = torch.nn.Linear(8, 11, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        return self.lm_head(self.ln_f(self.wte(ids)))


class Tied(nnx.Module):
    def __init__(self, rngs, epsilon=1e-5):
        self.embed = nnx.Embed(11, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, epsilon=epsilon, rngs=rngs)

    def __call__(self, ids):
        return self.embed.attend(self.norm(self.embed(ids)))


@pytest.mark.parametrize("source", ["module", "state dict"])
def test_tied_head(source):
    theirs, ours, ids = lively(TorchTied()), Tied(nnx.Rngs(0)), np.array([[1, 2, 10]])
    given = theirs if source == "module" else theirs.state_dict()
    _, report = load_into(ours, given, example=(ids,))
    same(ours(ids), theirs, ids)
    assert report.left_out == (("lm_head.weight", "tied to wte.weight"),)


class HandLlamaLayer(nnx.Module):
    def __init__(self, rngs, width, heads, groups, hidden):
        size = width // heads
        general = lambda n: nnx.LinearGeneral(width, (n, size), use_bias=False, rngs=rngs)
        self.ln_attn = nnx.RMSNorm(width, epsilon=1e-6, rngs=rngs)
        self.ln_mlp = nnx.RMSNorm(width, epsilon=1e-6, rngs=rngs)
        self.wq, self.wk, self.wv = general(heads), general(groups), general(groups)
        self.wo = nnx.LinearGeneral((heads, size), width, axis=(-2, -1), use_bias=False, rngs=rngs)
        dense = lambda a, b: nnx.Linear(a, b, use_bias=False, rngs=rngs)
        self.w1, self.w3 = dense(width, hidden), dense(width, hidden)
        self.w2 = dense(hidden, width)

    def __call__(self, x, table):
        h = self.ln_attn(x)
        q, k = rotated(self.wq(h), table), rotated(self.wk(h), table)
        x = x + self.wo(jax.nn.dot_product_attention(q, k, self.wv(h), is_causal=True))
        h = self.ln_mlp(x)
        return x + self.w2(nnx.silu(self.w1(h)) * self.w3(h))


def rotated(x, table):
    cos, sin = table
    a, b = jnp.split(x, 2, -1)
    return x * cos[:, None] + jnp.concatenate([-b, a], -1) * sin[:, None]


class HandLlama(nnx.Module):
    def __init__(self, rngs):
        self.tok = nnx.Embed(32, 16, rngs=rngs)
        self.trunk = nnx.List([HandLlamaLayer(rngs, 16, 4, 2, 24) for _ in range(3)])
        self.last_norm = nnx.RMSNorm(16, epsilon=1e-6, rngs=rngs)
        self.unembed = nnx.Linear(16, 32, use_bias=False, rngs=rngs)

    def __call__(self, ids):
        angles = jnp.arange(ids.shape[1])[:, None] * 10000.0 ** (-jnp.arange(0, 4, 2) / 4)
        angles = jnp.concatenate([angles, angles], -1)
        x = self.tok(ids)
        for layer in self.trunk:
            x = layer(x, (jnp.cos(angles), jnp.sin(angles)))
        return self.unembed(self.last_norm(x))


@pytest.fixture(scope="module")
def llama():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
        tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    return lively(transformers.LlamaForCausalLM(config))


def test_llama_by_hand(llama):
    ours, ids = HandLlama(nnx.Rngs(0)), np.arange(12).reshape(2, 6)
    _, report = load_into(ours, llama, example=(ids,))
    with torch.no_grad():
        want = llama(torch.from_numpy(ids)).logits.numpy()
    assert_close(np.asarray(ours(ids)), want, reduction=1024)
    assert report["trunk/2/w1/kernel"].torch == "model.layers.2.mlp.gate_proj.weight"
    assert report["trunk/2/w1/kernel"].how == "agreement"
    assert report["trunk/1/wq/kernel"].how == "name"
    assert report["tok/embedding"].how == "shape"


def test_llama_from_files(llama, tmp_path):
    llama.save_pretrained(tmp_path)
    by_hand, ids = HandLlama(nnx.Rngs(0)), np.arange(12).reshape(2, 6)
    with pytest.raises(WrongWeights, match=r"(?s)trunk/0/w1: .*gate_proj \| .*up_proj"):
        load_into(by_hand, tmp_path)
    names = {"w1": "gate_proj", "w3": "up_proj"}
    match = {f"trunk/*/{k}": f"model.layers.*.mlp.{v}" for k, v in names.items()}
    load_into(by_hand, tmp_path, match=match)
    with torch.no_grad():
        want = llama(torch.from_numpy(ids)).logits.numpy()
    assert_close(np.asarray(by_hand(ids)), want, reduction=1024)
    again, _ = load_into(HandLlama(nnx.Rngs(1)), tmp_path / "model.safetensors", match=match)
    jax.tree.map(np.testing.assert_array_equal, nnx.state(again), nnx.state(by_hand))


class Plain(nnx.Module):
    """Layers of plain parameters, in torch's order of axes or in the other."""

    def __init__(self, turned):
        self.w, self.b = nnx.Param(jnp.zeros((8, 8))), nnx.Param(jnp.zeros(8))
        self.turned = turned

    def __call__(self, x):
        return x @ (self.w[...].T if self.turned else self.w[...]) + self.b[...]


@pytest.mark.parametrize("turned", [False, True])
def test_square_parameters_are_turned_as_the_outputs_say(turned):
    theirs, x = lively(torch.nn.Linear(8, 8)), normal(3, 8)
    ours = Plain(turned)
    _, report = load_into(ours, theirs)
    same(ours(x), theirs, x)
    assert (report["w"].layout, report["w"].how) == (
        "as it is" if turned else "transposed",
        "agreement",
    )
    with pytest.raises(WrongWeights, match=r"\(as it is\) \|  ?\(transposed\)|arrays alone"):
        load_into(Plain(turned), theirs.state_dict())


class Sum(nnx.Module):
    def __init__(self, rngs):
        self.left, self.right = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return self.left(x) + self.right(x)


class TorchSum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.one(x) + self.two(x)


def test_what_no_output_tells_apart_is_ambiguous():
    theirs, x = lively(TorchSum()), normal(2, 4)
    with pytest.raises(WrongWeights, match=r"(?s)2 layers.*left: one \| two.*right: one \| two"):
        load_into(Sum(nnx.Rngs(0)), theirs, example=(x,))
    ours, report = load_into(Sum(nnx.Rngs(0)), theirs, match={"left": "two"}, example=(x,))
    same(ours(x), theirs, x)
    assert (report["left/bias"].how, report["right/bias"].how) == ("given", "shape")


def test_all_that_is_missing_or_left_over_is_told_at_once():
    ours = Mlp(nnx.Rngs(0), 3, 8, 5, 7)
    before = nnx.state(ours)
    with pytest.raises(WrongWeights) as caught:
        load_into(ours, {"a.weight": normal(8, 3), "a.bias": normal(8), "x.gamma": normal(9)})
    text = str(caught.value)
    assert "4 variables are not filled and 1 torch tensors not used" in text
    for name in ("layers/1/kernel (8, 5)", "layers/2/bias (7,)", "x.gamma (9,)"):
        assert name in text
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(ours))
    values = {"layers/1": None, "layers/2/*": None}
    stored = {"a.weight": normal(8, 3), "a.bias": normal(8), "x.gamma": normal(9)}
    _, report = load_into(ours, stored, match=values, ignore=["x.*"])
    assert len(report.stays) == 4
    assert report.left_out == (("x.gamma", "ignored, as asked"),)


def test_the_first_submodule_that_differs_is_named_and_nothing_is_changed():
    theirs, ids = lively(TorchTied()), np.array([[1, 2, 10]])
    ours = Tied(nnx.Rngs(0), epsilon=0.1)
    before = nnx.state(ours)
    with pytest.raises(WrongWeights, match=r"(?s)norm \(torch: ln_f\).*epsilon 0.1, .* 1e-05"):
        load_into(ours, theirs, example=(ids,))
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(ours))
    assert not theirs.training


class NoRelu(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.b(self.a(x))


def test_code_between_submodules_that_differs_is_told():
    with pytest.raises(WrongWeights, match="the code between them"):
        load_into(NoRelu(nnx.Rngs(0)), torch_mlp(3, 8, 2), example=(normal(4, 3),))


def test_arrays_get_the_dtype_of_the_variables():
    theirs = lively(torch.nn.Linear(3, 2)).to(torch.bfloat16)
    ours = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    _, report = load_into(ours, theirs)
    assert report["kernel"].cast == "bfloat16 -> float32"
    assert "bfloat16 -> float32" in str(report)
    np.testing.assert_array_equal(ours.kernel[...].T, theirs.weight.detach().float().numpy())
    half = nnx.Linear(3, 2, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    load_into(half, theirs.float(), example=(normal(4, 3),))
    assert half.kernel.dtype == jnp.bfloat16


def test_an_abstract_module_and_a_mesh():
    theirs = lively(torch.nn.Linear(8, 4))
    ours = nnx.eval_shape(lambda: nnx.Linear(8, 4, rngs=nnx.Rngs(0)))
    load_into(ours, theirs, example=(normal(2, 8),))
    spread = nnx.Linear(8, 4, rngs=nnx.Rngs(0))
    mesh = jax.make_mesh((4,), ("x",))
    rows = jax.NamedSharding(mesh, jax.P("x"))
    spread.kernel.set_value(jax.device_put(spread.kernel[...], rows))
    load_into(spread, theirs)
    assert spread.kernel.get_value().sharding == rows
    np.testing.assert_array_equal(spread.kernel[...], ours.kernel[...])


def test_given_arrays_and_bad_decisions():
    theirs, ours = torch_mlp(3, 8, 8), Mlp(nnx.Rngs(0), 3, 8, 8)
    kernel = normal(3, 8)
    stored = {k: v for k, v in theirs.state_dict().items() if k != "0.weight"}
    match = {"layers/0/kernel": kernel, "layers/0/bias": np.zeros(8, np.float32)}
    load_into(ours, stored, match=match, ignore="0.bias")
    np.testing.assert_array_equal(ours.layers[0].kernel[...], kernel)
    for wrong in ({"nope": "0"}, {"layers/0": "nope"}, {"layers/0": "2"}, {"layers/0": ("0", "x")}):
        with pytest.raises(WrongArguments, match="match"):
            load_into(ours, theirs, match=wrong)
    with pytest.raises(WrongArguments, match="shape"):
        load_into(ours, theirs, match={"layers/0/kernel": normal(8, 3)})


def test_arguments_that_are_wrong(tmp_path):
    theirs, linen = torch_mlp(3, 8), nn.Dense(8)
    linear = nnx.Linear(3, 8, rngs=nnx.Rngs(0))
    for args, given in [
        ((linear, 3), {}),
        ((linear, {"weight": "text"}), {}),
        ((theirs, theirs), {}),
        ((linen, theirs), {}),
        ((linear, theirs), {"variables": {}}),
        ((linear, theirs), {"example": normal(2, 3)}),
    ]:
        with pytest.raises(WrongArguments):
            load_into(*args, **given)
    with pytest.raises(ForwardFailed, match="torch_example"):
        load_into(linear, theirs, example=(normal(2, 4),))
    for path in (tmp_path, tmp_path / "none.safetensors"):
        with pytest.raises(BadCheckpoint):
            load_into(linear, path)
