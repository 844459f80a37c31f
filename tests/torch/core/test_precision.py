"""What products and convolutions ask of JAX: torch's flags, JAX's default, or float32."""

from __future__ import annotations

import contextlib

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax import jaxprs
from anyjax.errors import WrongArguments

X = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
PRODUCTS = ("dot_general", "conv_general_dilated")


class Squared(torch.autograd.Function):
    """A product whose gradient is code of its own, traced after the forward pass."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x @ x.mT

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return (grad + grad.mT) @ x


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.up = torch.nn.ConvTranspose2d(4, 4, 3)
        self.rnn = torch.nn.LSTM(8, 8, batch_first=True)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = self.up(self.conv(x))[:, 0]
        x, _ = self.rnn(x)
        x, _ = self.attention(x, x, x)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        return torch.einsum("bij,bkj->bik", Squared.apply(x), x)


def asked(model, of_gradient=True):
    """Returns {primitive: what its calls ask for}."""
    loss = lambda params: model.apply(params, X).sum()
    function = jax.grad(loss) if of_gradient else loss
    kinds = {}
    programs = [jax.make_jaxpr(function)(model.params)]
    for program in programs:
        for equation in jaxprs.opened(program).eqns:
            programs += filter(jaxprs.is_program, jax.tree.leaves([*equation.params.values()]))
            if equation.primitive.name in PRODUCTS:
                pair = equation.params["precision"] or (None, None)
                kinds.setdefault(equation.primitive.name, set()).update(x and x.name for x in pair)
    return kinds


@contextlib.contextmanager
def flags(matmul, tf32):
    """torch's flags for a while; torch's own tests forbid to set them for good."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(matmul)
    try:
        with torch.backends.cudnn.flags(allow_tf32=tf32):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    "matmul, tf32, products, convolutions",
    [
        ("highest", True, "HIGHEST", "HIGH"),
        ("highest", False, "HIGHEST", "HIGHEST"),
        ("high", True, "HIGH", "HIGH"),
        ("medium", False, "DEFAULT", "HIGHEST"),
    ],
)
def test_torchs_flags_when_it_is_converted(matmul, tf32, products, convolutions):
    with flags(matmul, tf32):
        model = anyjax.from_torch(Network())
    assert asked(model) == {"dot_general": {products}, "conv_general_dilated": {convolutions}}


def test_jaxs_default_and_float32():
    default = anyjax.from_torch(Network(), precision="default")
    assert asked(default) == {"dot_general": {None}, "conv_general_dilated": {None}}
    with jax.default_matmul_precision("highest"):
        assert asked(default, of_gradient=False)["dot_general"] == {"HIGHEST"}
    highest = anyjax.from_torch(Network(), precision="highest")
    assert asked(highest) == {"dot_general": {"HIGHEST"}, "conv_general_dilated": {"HIGHEST"}}


def test_it_is_part_of_the_model():
    module = torch.nn.Linear(3, 2)
    model = anyjax.from_torch(module)
    assert "float32 highest for products, high for convolutions" in repr(model)
    assert "float32 JAX's default" in repr(anyjax.from_torch(module, precision="default"))
    assert model.train().source.precision == model.source.precision


def test_generated_text_is_computed_as_the_model_is():
    model = anyjax.from_pretrained("examples/tiny-llama", precision="default")
    assert "JAX's default" in repr(model)
    ids = np.array([[1, 2, 3]])
    texts = [
        anyjax.from_pretrained("examples/tiny-llama", precision=x).generate(ids, max_new_tokens=4)
        for x in ("default", "torch")
    ]
    np.testing.assert_array_equal(*texts)


def test_another_word_is_refused():
    with pytest.raises(WrongArguments, match="precision='tf32'"):
        anyjax.from_torch(torch.nn.Linear(3, 2), precision="tf32")


@pytest.mark.parametrize("precision", ["exact", "highest"])
def test_exact_is_the_formula_on_every_platform(precision):
    attention = torch.nn.functional.scaled_dot_product_attention
    model = anyjax.from_torch(lambda x: attention(x, x, x, is_causal=True), precision=precision)
    x = jax.ShapeDtypeStruct((1, 2, 256, 64), jax.numpy.bfloat16)
    loss = jax.jit(jax.grad(lambda x: model.apply({}, x).astype("float32").sum()))
    text = loss.trace(x).lower(lowering_platforms=("tpu",)).as_text()
    assert ("tpu_custom_call" in text) == (precision == "highest")
    assert ("by its formula" in repr(model)) == (precision == "exact")
