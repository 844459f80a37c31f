"""The operators that TorchScript has for attention and encoder layers."""

import jax
import pytest
import torch

import anyjax
from tests.attention_kernels import assert_kernels
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

aten = torch.ops.aten
BATCH, LENGTH, WIDTH, HEADS = 2, 5, 8, 2
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
MASKS = [(None, None), (CAUSAL, 0), (PADDED, 1)]
MASKS += [((CAUSAL | PADDED[:, None])[:, None].expand(-1, HEADS, -1, -1), 2)]


def drawn(*shape):
    return torch.randn(*shape) / shape[-1] ** 0.5


def assert_same(op, tensors, *rest):
    want = op(*tensors, *rest)
    got = anyjax.from_torch(lambda *xs: op(*xs, *rest))(*(x.numpy() for x in tensors))
    assert_close(got, want, reduction=8 * WIDTH)


@pytest.mark.parametrize(("mask", "kind"), MASKS)
@pytest.mark.parametrize(("wanted", "averaged"), [(False, True), (True, True), (True, False)])
def test_attention(mask, kind, wanted, averaged):
    torch.manual_seed(0)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    weights = [drawn(3 * WIDTH, WIDTH), drawn(3 * WIDTH), drawn(WIDTH, WIDTH), drawn(WIDTH)]
    op = lambda q, k, v, *w: aten._native_multi_head_attention(
        q, k, v, WIDTH, HEADS, *w, mask, wanted, averaged, kind
    )
    assert_same(op, [x, x + 1, x - 1, *weights])
    assert_same(op, [x, x, x, *weights])


BLIND = torch.tensor([[False] * 5, [True] * 5])


@pytest.mark.parametrize("wanted", [False, True])
def test_text_of_which_nothing_is_seen(wanted):
    x = torch.ones(BATCH, LENGTH, WIDTH)
    weights = [drawn(3 * WIDTH, WIDTH), drawn(3 * WIDTH), drawn(WIDTH, WIDTH), drawn(WIDTH)]
    op = lambda x, *w: aten._native_multi_head_attention(
        x, x, x, WIDTH, HEADS, *w, BLIND, wanted, True, 1
    )
    assert_same(op, [x, *weights])


@pytest.mark.parametrize("padded", [False, True])
def test_kernels(padded):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 32, batch_first=True).eval()
    weights = [x.detach() for x in layer.parameters()]
    x, hidden = torch.randn(2, 256, 64), torch.arange(256) >= torch.tensor([[200], [256]])
    mask = (hidden, 1) if padded else (None, None)
    model = anyjax.from_torch(lambda x, *weights: fast(x, *mask, *weights))
    apply = lambda *args: model.apply(model.params, *args)
    args = [y.numpy() for y in (x, *weights)]
    assert_kernels(apply, *args, dense=("cuda",) if padded else ())
    x.requires_grad_()
    want = by_hand(layer, x, hidden if padded else None)
    (want**2).sum().backward()
    assert_close(jax.jit(apply)(*args), want.detach(), reduction=256)
    got = jax.grad(lambda *x: (apply(*x) ** 2).sum())(*args)
    assert_close(got, x.grad, reduction=256 * 64)


def fast(x, mask, kind, *weights):
    """Returns an encoder layer as TorchScript has it, norms first, of weights in their order."""
    heads, feed, norms = weights[:4], weights[4:8], weights[8:]
    how = False, True, 1e-5, *norms, *feed
    return aten._transformer_encoder_layer_fwd(x, 64, 4, *heads, *how, mask, kind)


def by_hand(layer, x, hidden):
    y = layer.norm1(x)
    x = x + layer.self_attn(y, y, y, hidden, need_weights=False)[0]
    return x + layer.linear2(layer.linear1(layer.norm2(x)).relu())


@pytest.mark.parametrize(("mask", "kind"), MASKS[:3])
@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_encoder_layer(mask, kind, gelu, first):
    torch.manual_seed(1)
    heads = [drawn(3 * WIDTH, WIDTH), drawn(3 * WIDTH), drawn(WIDTH, WIDTH), drawn(WIDTH)]
    norms = [torch.rand(WIDTH), drawn(WIDTH), torch.rand(WIDTH), drawn(WIDTH)]
    feed = [drawn(16, WIDTH), drawn(16), drawn(WIDTH, 16), drawn(WIDTH)]
    op = lambda src, *w: aten._transformer_encoder_layer_fwd(
        src, WIDTH, HEADS, *w[:4], gelu, first, 1e-5, *w[4:], mask, kind
    )
    assert_same(op, [torch.randn(BATCH, LENGTH, WIDTH), *heads, *norms, *feed])
