"""The operators that TorchScript has for attention and encoder layers."""

import pytest
import torch

import anyjax
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
