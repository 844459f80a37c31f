"""flex_attention: scores and masks by functions of single positions."""

import jax
import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import anyjax
from tests.attention_kernels import assert_kernels, binds
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

DRAW = np.random.default_rng(0)
Q, K, V = (DRAW.standard_normal((2, 4, 6, 8)).astype(np.float32) for _ in range(3))
SLOPES = torch.tensor([0.1, 0.2, 0.3, 0.4])
ROW, COLUMN = torch.arange(6)[:, None], torch.arange(6)[None]
DOCUMENT = torch.tensor([0, 0, 1, 1, 1, 2])


def causal(b, h, i, j):
    return i >= j


def documents(b, h, i, j):
    return DOCUMENT[i] == DOCUMENT[j]


def alibi(score, b, h, i, j):
    return score - SLOPES[h] * (i - j).abs()


def by_hand(q, k, v, bias=0.0, keep=None):
    scores = q @ k.transpose(-1, -2) / 8**0.5 + bias
    scores = scores if keep is None else scores.masked_fill(~keep, -torch.inf)
    return scores.softmax(-1) @ v


ALIBI = -SLOPES[:, None, None] * (ROW - COLUMN).abs()
CASES = {
    "nothing": ({}, {}),
    "score": ({"score_mod": alibi}, {"bias": ALIBI}),
    "causal": ({"block_mask": causal}, {"keep": ROW >= COLUMN}),
    "documents": ({"block_mask": documents}, {"keep": DOCUMENT[:, None] == DOCUMENT}),
    "both": ({"score_mod": alibi, "block_mask": causal}, {"bias": ALIBI, "keep": ROW >= COLUMN}),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    given, told = CASES[case]
    if "block_mask" in given:
        mask = create_block_mask(given["block_mask"], None, None, 6, 6, device="cpu")
        given = given | {"block_mask": mask}
    model = anyjax.from_torch(lambda q, k, v: flex_attention(q, k, v, **given))
    loss = lambda q, k, v: (model.apply({}, q, k, v) ** 2).sum()
    got = jax.jit(model.apply)({}, Q, K, V)
    tensors = [torch.tensor(x, requires_grad=True) for x in (Q, K, V)]
    want = by_hand(*tensors, **told)
    np.testing.assert_allclose(got, want.detach(), rtol=1e-5, atol=1e-5)
    (want**2).sum().backward()
    for one, tensor in zip(jax.jit(jax.grad(loss, (0, 1, 2)))(Q, K, V), tensors):
        np.testing.assert_allclose(one, tensor.grad, rtol=1e-4, atol=1e-5)


def test_grouped_heads_and_rows_without_keys():
    nobody = lambda b, h, i, j: (i > 0) & (h < 4)
    mask = create_block_mask(nobody, None, None, 6, 6, device="cpu")

    def function(q, k, v):
        aux = AuxRequest(lse=True)
        out, found = flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_aux=aux)
        return out, found.lse

    got, sums = jax.jit(anyjax.from_torch(function).apply)({}, Q, K[:, :2], V[:, :2])
    q, k, v = map(torch.tensor, (Q, K, V))
    k, v = (x[:, :2].repeat_interleave(2, 1) for x in (k, v))
    want = by_hand(q, k, v)
    want[:, :, 0] = 0
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    scores = (q @ k.transpose(-1, -2) / 8**0.5).logsumexp(-1)
    np.testing.assert_allclose(sums[:, :, 1:], scores[:, :, 1:], rtol=1e-5)
    assert np.isneginf(sums[:, :, 0]).all()


LENGTH = 256
LARGE = [DRAW.standard_normal((2, n, LENGTH, 16)).astype(np.float32) for n in (4, 2, 2)]
NUMBERS = torch.arange(LENGTH)
AT, BY = NUMBERS[:, None], NUMBERS[None]
FORMS = {
    "nothing": (None, ("tpu", "cuda")),
    "causal": (causal, ("tpu", "cuda")),
    "causal by a buffer": (lambda b, h, i, j: NUMBERS[i] >= j, ("tpu", "cuda")),
    "window": (lambda b, h, i, j: (i >= j) & (i - j < 40), ("tpu", "cuda")),
    "around": (lambda b, h, i, j: (i - j).abs() <= 7, ("tpu",)),
    "from the window on": (lambda b, h, i, j: i - j < 40, ("tpu",)),
}
FORMULAS = {
    "documents": lambda b, h, i, j: NUMBERS[i] // 50 == NUMBERS[j] // 50,
    "of a head": lambda b, h, i, j: (i >= j) & (h < 3),
    "prefix": lambda b, h, i, j: (i >= j) | (j < 20),
    "a row sees nothing": lambda b, h, i, j: i > j,
}


def large(keep, **how):
    """Returns the model of an attention whose heads share keys, and it by hand."""
    mask = create_block_mask(keep, None, None, LENGTH, LENGTH, device="cpu") if keep else None
    call = lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True, **how)
    model = anyjax.from_torch(call)
    seen = torch.ones(4, LENGTH, LENGTH, dtype=torch.bool)
    if keep:
        seen &= torch.stack([keep(0, torch.tensor(h), AT, BY).expand_as(seen[0]) for h in range(4)])

    def hand(q, k, v):
        scores = q @ k.repeat_interleave(2, 1).mT / 4
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
        return weights @ v.repeat_interleave(2, 1)

    return lambda *x: model.apply({}, *x), hand


def assert_same(apply, hand):
    tensors = [torch.tensor(x, requires_grad=True) for x in LARGE]
    want = hand(*tensors)
    assert_close(jax.jit(apply)(*LARGE), want.detach(), reduction=LENGTH)
    of = torch.autograd.grad((want**2).sum(), tensors)
    got = jax.grad(lambda *x: (apply(*x) ** 2).sum(), (0, 1, 2))(*LARGE)
    assert_close(got, of, reduction=LENGTH * 16)


@pytest.mark.parametrize("case", FORMS)
def test_masks_that_kernels_know(case):
    keep, platforms = FORMS[case]
    apply, hand = large(keep)
    assert_kernels(apply, *LARGE, platforms=platforms)
    assert_same(apply, hand)


@pytest.mark.parametrize("case", FORMULAS)
def test_other_masks(case):
    apply, hand = large(FORMULAS[case])
    assert not binds(apply, *LARGE)
    if case != "a row sees nothing":  # whose gradient by hand is NaN
        assert_same(apply, hand)


def test_other_scores_and_sums_that_are_asked_for():
    assert not binds(large(causal, score_mod=alibi)[0], *LARGE)
    assert not binds(large(causal, return_aux=AuxRequest(lse=True))[0], *LARGE)


def test_a_mask_of_an_input():
    def function(q, k, v, length):
        keep = lambda b, h, i, j: (i >= j) & (j < length)
        mask = create_block_mask(keep, None, None, LENGTH, LENGTH, device="cpu")
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)

    model = anyjax.from_torch(function)
    apply = lambda *x: model.apply({}, *x)
    assert not binds(apply, *LARGE, np.int32(200))
