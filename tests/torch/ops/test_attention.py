"""scaled_dot_product_attention against torch's: masks of every kind, grouped heads, empty rows."""

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from anyjax.errors import AnyjaxError
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
Q, K, V = (
    RNG.standard_normal(s).astype(np.float32) for s in [(2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 6)]
)
GROUPED = [
    RNG.standard_normal(s).astype(np.float32) for s in [(2, 8, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)]
]
SHAPES = [(5, 7), (1, 7), (4, 5, 7), (1, 5, 7), (2, 1, 5, 7), (2, 4, 5, 7), (2, 1, 1, 7)]


def assert_same(function, *arrays):
    """Outputs and gradients of a weighted sum agree."""
    tensors = [torch.from_numpy(a.copy()) for a in arrays]
    floats = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    want = function(*tensors)
    weight = np.cos(np.arange(want.numel(), dtype=np.float32)).reshape(want.shape)
    grads = torch.autograd.grad((want * torch.from_numpy(weight)).sum(), floats)
    model = anyjax.from_torch(function)
    places = [i for i, a in enumerate(arrays) if a.dtype == np.float32]

    def loss(chosen):
        full = list(arrays)
        for i, x in zip(places, chosen, strict=True):
            full[i] = x
        out = model.apply({}, *full)
        return (out * weight).sum(), out

    got_grads, got = jax.jit(jax.grad(loss, has_aux=True))([arrays[i] for i in places])
    assert_close(got, want, reduction=64)
    assert_close(got_grads, list(grads), reduction=256, scale=1.0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(shape, kind):
    mask = RNG.random(shape) > 0.4 if kind == "bool" else RNG.standard_normal(shape)
    mask = mask if kind == "bool" else mask.astype(np.float32)
    assert_same(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), Q, K, V, mask
    )


@pytest.mark.parametrize("shape", [None, (5, 7), (8, 5, 7), (2, 8, 5, 7), (2, 1, 1, 7)], ids=str)
def test_grouped_heads(shape):
    mask = np.ones((5, 7), bool) if shape is None else RNG.random(shape) > 0.4
    attend = F.scaled_dot_product_attention
    assert_same(lambda q, k, v, m: attend(q, k, v, attn_mask=m, enable_gqa=True), *GROUPED, mask)


@pytest.mark.parametrize("grouped", [False, True])
def test_causal_is_aligned_at_the_top_left(grouped):
    attend = F.scaled_dot_product_attention
    arrays = GROUPED if grouped else (Q, K, V)
    assert_same(
        lambda q, k, v: attend(q, k, v, is_causal=True, enable_gqa=grouped, scale=0.3), *arrays
    )


@pytest.mark.parametrize("hidden", [False, -np.inf, np.finfo(np.float32).min], ids=str)
def test_rows_that_are_masked_out_entirely(hidden):
    mask = RNG.random((2, 1, 5, 7)) > 0.4
    mask[0, 0, 2], mask[1] = False, False
    mask = mask if hidden is False else np.where(mask, 0, hidden).astype(np.float32)
    stay = torch.from_numpy(mask)
    assert_same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=stay), Q, K, V)


def test_batch_dimensions_broadcast():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    assert_same(attend, Q, K[:1], V[:1])
    assert_same(attend, Q[0, 0], K[0, 0], V[0, 0])


@pytest.mark.parametrize("batch", [(), (4,), (2, 4), (3, 1, 2)], ids=str)
def test_dimensions(batch):
    """Also where there are more queries than keys, and with a scale."""
    arrays = [RNG.standard_normal((*batch, n, 8)).astype(np.float32) for n in (7, 5, 5)]
    mask = RNG.standard_normal((7, 5)).astype(np.float32)
    mask[3] = -np.inf
    attend = F.scaled_dot_product_attention
    assert_same(lambda *qkv: attend(*qkv, is_causal=True, scale=0.5), *arrays)
    assert_same(lambda *qkv: attend(*qkv, attn_mask=torch.tensor(mask), scale=2.0), *arrays)
    assert_same(lambda *qkv: attend(*qkv, attn_mask=torch.tensor(mask > -0.3)), *arrays)


def test_causal_with_a_mask_is_refused():
    model = anyjax.from_torch(
        lambda q, m: F.scaled_dot_product_attention(q, q, q, m, is_causal=True)
    )
    with pytest.raises(AnyjaxError, match="is_causal together with attn_mask"):
        model.apply({}, Q, np.ones((5, 5), bool))


def test_dropout_keeps_the_mean():
    model = anyjax.from_torch(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5))
    kept = np.mean([model.apply({}, np.ones_like(Q), rng=jax.random.key(i)) for i in range(8)])
    assert abs(kept - 1) < 0.1
