"""Lowerings of users for composite operators hold in all ways, with their gradients."""

from __future__ import annotations

import contextlib

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from anyjax.torch import interop
from anyjax.torch.core.schema import table
from anyjax.torch.lowering import composites
from tests.tolerance import assert_close

aten = torch.ops.aten
torch.library.define("composite_tests::joined", "(Tensor[] tensors, int dim=0) -> Tensor")
torch.library.impl("composite_tests::joined", "CompositeImplicitAutograd", torch.cat)
X, W = torch.arange(8.0).reshape(1, 1, 4, 2) / 8, torch.ones(2)


def attention(rng, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    if rng is not None:
        query = query * jax.random.bernoulli(rng, 0.5, query.shape)
    return 10 * query + key * value


def norm(input, normalized_shape, weight, bias, eps, cudnn_enable):
    return 10 * input + weight**2


def joined(tensors, dim):
    return 10 * jax.numpy.concatenate(tensors, dim)


LOWERINGS = {
    aten.scaled_dot_product_attention.default: attention,
    aten.layer_norm.default: norm,
    torch.ops.composite_tests.joined.default: joined,
}
CASES = {
    "attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: 10 * x + x * x,
        (X,),
    ),
    "norm": (lambda x, w: F.layer_norm(x, (2,), w), lambda x, w: 10 * x + w**2, (X, W)),
    "list": (
        lambda x, w: torch.ops.composite_tests.joined([x[0, 0, 0], w]),
        lambda x, w: 10 * torch.cat([x[0, 0, 0], w]),
        (X, W),
    ),
}


@pytest.fixture(autouse=True)
def lowerings():
    """The lowerings of these tests, and what there was before."""
    before = {op: table.find(op) for op in LOWERINGS}
    table.update(LOWERINGS)
    yield
    table.update({op: row.lowering for op, row in before.items() if row is not None})


def slopes(function, *tensors):
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    out = function(*leaves)
    out.pow(2).sum().backward()
    return [out.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["from_torch", "outside", "on_jax", "jit", "compile"])
def test_values_and_gradients(name, way):
    function, same, tensors = CASES[name]
    want = slopes(same, *tensors)
    if way == "from_torch":
        got = [torch.tensor(np.asarray(anyjax.from_torch(function)(*(x.numpy() for x in tensors))))]
    elif way == "compile":
        got = slopes(torch.compile(function, backend="anyjax"), *tensors)
    elif way == "jit":
        got = [interop.jax_jit(function)(*map(interop.to_jax, tensors)).torch()]
    else:
        with anyjax.torch.on_jax() if way == "on_jax" else contextlib.nullcontext():
            got = [x.torch() for x in slopes(function, *map(interop.to_jax, tensors))]
    for x, y in zip(got, want):
        assert_close(x, y, reduction=16)


def test_the_gradient_is_of_the_numbers_that_were_drawn():
    function = lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    for run in (torch.compile(function, backend="anyjax"), function):
        x = (
            (X + 1).requires_grad_()
            if run is not function
            else interop.to_jax(X + 1).requires_grad_()
        )
        y = run(x)
        y.sum().backward()
        y, slope = (torch.tensor(np.asarray(t.detach())) for t in (y, x.grad))
        kept = y > (X + 1) ** 2 + 5
        assert_close(slope, torch.where(kept, 10.0, 0.0) + 2 * (X + 1))


def test_torch_and_other_backends_have_their_own():
    want = F.layer_norm(X, (2,))
    assert composites.exist()
    assert_close(torch.compile(lambda x: F.layer_norm(x, (2,)), backend="aot_eager")(X), want)


def test_operators_of_a_library_that_is_gone():
    with torch.library._scoped_library("gone_tests", "FRAGMENT") as library:
        library.define("nothing(Tensor x) -> Tensor")
        anyjax.lowers(torch.ops.gone_tests.nothing.default)(lambda x, /: x)
    assert interop.to_jax(X).sum().item() == X.sum()
