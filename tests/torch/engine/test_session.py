"""What a trace switches, and that nothing of it stays: users' settings of JAX, leaks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import anyjax

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(0)
normal = lambda *shape: RNG.standard_normal(shape).astype(np.float32)
MODULES = {
    "layers": (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.RMSNorm(8)), (3, 4)),
    "picture": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Upsample(scale_factor=2.0)),
        (2, 3, 8, 8),
    ),
    "recurrent": (nn.LSTM(4, 5, 2, bidirectional=True), (6, 3, 4)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "channels": (nn.Sequential(nn.InstanceNorm1d(4, affine=True), nn.PReLU(4)), (2, 4, 6)),
}


class Doubled(torch.autograd.Function):
    """Its gradient needs what forward has saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


HOOKED = nn.Tanh()
HOOKED.register_full_backward_hook(lambda module, inputs, outputs: (2 * inputs[0],))


def hooked(x):
    y = x * x
    y.register_hook(lambda grad: 2 * grad)
    return y * x


FUNCTIONS = {
    "a gradient of its own": lambda x: Doubled.apply(x * x),
    "a hook of a tensor": hooked,
    "a hook of a module": lambda x: HOOKED(x * x),
    "operands of other ranks": lambda x: torch.addcdiv(x, x[0], x * x + 1).lerp(x[0], x[1]),
    "a condition": lambda x: x * x[0] if x.sum() > 0 else x - x[0],
    "torch.cond": lambda x: torch.cond(x.sum() > 0, lambda x: x * x[0], lambda x: x - x[0], (x,)),
    "masked rows": lambda x: (x[x[:, 0] > 0] * x[0]).sum(),
    "places": lambda x: x[torch.where(x[:, 0] > 0)[0]].sum(),
    "masked numbers": lambda x: x[x > 0].mean(),
    "a number": lambda x: x * x.max().item(),
    "repeated places": lambda x: x.index_put((torch.tensor([0, 0]),), x[1]),
    "losses": lambda x: nn.functional.cross_entropy(x, torch.tensor([0, 1, 2])),
}


def total(out):
    return sum(jnp.sum(x) for x in jax.tree.leaves(out) if jnp.issubdtype(x.dtype, jnp.inexact))


@pytest.mark.parametrize("name", MODULES)
def test_modules_where_ranks_are_not_promoted(name):
    """The setting is about JAX code, which converted code is not."""
    module, shape = MODULES[name]
    model, x = anyjax.from_torch(module).train(), normal(*shape)
    run = lambda p: model.apply(p, x, rng=jax.random.key(0), mutable=True)[0]
    with jax.numpy_rank_promotion("raise"):
        jax.make_jaxpr(run)(model.params)
        jax.make_jaxpr(jax.grad(lambda p: total(jax.jit(run)(p))))(model.params)
        with pytest.raises(ValueError, match="numpy_rank_promotion"):
            jnp.ones((2, 3)) + jnp.ones(3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_where_ranks_are_not_promoted(name):
    apply = anyjax.from_torch(FUNCTIONS[name]).apply
    with jax.numpy_rank_promotion("raise"):
        jax.make_jaxpr(jax.grad(lambda x: total(jax.jit(apply)({}, x))))(normal(3, 4))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tracers_do_not_leak(name):
    """Nor do they wait for the garbage collector."""
    apply, x = anyjax.from_torch(FUNCTIONS[name]).apply, normal(3, 4)
    with jax.checking_leaks():
        jax.jit(apply)({}, x)
        jax.jit(jax.grad(lambda x: total(apply({}, x))))(x)


def test_a_model_inside_of_a_trace_leaves_its_switches():
    """Views of constants after it are what they are before it."""
    inner = anyjax.from_torch(nn.Linear(4, 4))

    def outer(x):
        for number in torch.arange(1.0, 3.0):
            x = inner(x) * number.expand(x.shape[0])[:, None]
        return x

    x = normal(3, 4)
    want = 2 * inner(np.asarray(inner(x)))
    np.testing.assert_allclose(anyjax.from_torch(outer)(x), want, rtol=1e-5, atol=1e-6)
