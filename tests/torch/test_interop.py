"""torchax's names: with the meaning that its documentation gives them."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from jax.sharding import PartitionSpec as P
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch import interop
from anyjax.torch.eager.tensor import EagerTensor
from tests.tolerance import assert_close

X = jnp.arange(6.0).reshape(2, 3)


def test_views_cross_over_without_a_copy():
    tree = {"x": X, "rest": [1, "two", None, jnp.dtype("bfloat16")]}
    tensors = interop.torch_view(tree)
    assert isinstance(tensors["x"], torch.Tensor)
    assert tensors["rest"] == [1, "two", None, torch.bfloat16]
    arrays = interop.jax_view(tensors)
    assert arrays["x"] is X
    assert arrays["rest"][:3] == [1, "two", None]
    assert interop.jax_view_elem(torch.float16) == jnp.float16
    assert interop.jax_view_elem(torch.int64) == jnp.int32
    assert interop.torch_view_elem(X).jax() is X
    module = nn.Identity()
    assert interop.jax_view(module) is module
    with pytest.raises(Unsupported, match="in the place of a tensor on JAX"):
        interop.jax_view(torch.ones(2))


def test_functions_cross_over():
    x = interop.torch_view(X)
    assert interop.call_jax(jnp.sum, x, axis=0).tolist() == [3, 5, 7]
    assert interop.torch_view(jnp.cumsum)(x, axis=1).tolist() == [[0, 1, 3], [3, 7, 12]]
    assert interop.call_torch(torch.sum, X, dim=1).tolist() == [3, 12]
    function = interop.jax_view(lambda x: torch.ones(3) * x["x"] + torch.zeros(2, 1))
    out = jax.jit(function)({"x": X})
    assert isinstance(out, jax.Array)
    assert out.tolist() == X.tolist()
    loops = interop.fori_loop(0, 3, lambda i, x: x + i, x)
    assert loops.tolist() == (X + 3).tolist()


def test_gradients_of_jax():
    function = interop.jax_view(lambda w, x: torch.tanh(x @ w).pow(2).sum())
    plain = lambda w, x: (jnp.tanh(x @ w) ** 2).sum()
    w = jnp.ones((3, 2)) / 4
    for transform in (jax.grad, lambda f: jax.jit(jax.grad(f)), jax.jacfwd):
        assert_close(transform(function)(w, X), transform(plain)(w, X), reduction=16)
    assert_close(
        jax.vmap(function, (None, 0))(w, X), jax.vmap(plain, (None, 0))(w, X), reduction=16
    )
    value, grad = interop.jax_value_and_grad(lambda w: (w**2).sum())(interop.torch_view(w))
    assert type(grad) is EagerTensor
    assert_close((value.item(), grad.jax()), (float((w**2).sum()), 2 * w), reduction=8)


def test_gradients_of_torch():
    x = interop.torch_view(X).requires_grad_()
    function = interop.j2t_autograd(lambda x, scale, power=1: {"y": scale * x**power})
    out = function(x, 2.0, power=3)["y"]
    out.sum().backward()
    assert_close(x.grad.jax(), 6 * X**2)
    assert not interop.call_jax(jnp.sin, x).requires_grad
    with pytest.raises(Unsupported, match="a call_jax of its own"):
        interop.j2t_autograd(jnp.sin, call_jax=print)


def test_jit_compiles_once_and_draws_anew():
    runs = []

    def function(x, rate):
        runs.append(1)
        return nn.functional.dropout(x, rate), torch.rand(3)

    for jit in (interop.jax_jit, interop.jit):
        jitted = jit(function, {"static_argnums": 1})
        ones = interop.torch_view(jnp.ones(32))
        torch.manual_seed(0)
        first, second = jitted(ones, 0.5), jitted(ones, 0.5)
        torch.manual_seed(0)
        again = jitted(ones, 0.5)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert len(runs) == 2


def test_nested_jit_draws_from_the_outer_key():
    inner = interop.jax_jit(nn.functional.dropout)
    outer = interop.jax_jit(lambda x: (inner(x), inner(x)))
    ones = interop.torch_view(jnp.ones(32))
    draws = [*outer(ones), *outer(ones)]
    assert len({tuple(d.tolist()) for d in draws}) == 4
    assert jax.jit(interop.jax_view(interop.jax_jit(torch.sin)))(X).shape == X.shape


def test_a_checkpoint_computes_again():
    runs = []

    def block(w):
        runs.append(1)
        return nn.functional.dropout(torch.sin(w)).sum()

    block = interop.gradient_checkpoint(block)
    value, grad = interop.jax_value_and_grad(block)(interop.torch_view(X))
    mask = grad.jax() / jnp.cos(X)
    assert set(np.unique(np.round(mask, 4)).tolist()) <= {0.0, 2.0}
    assert_close(value.item(), float((mask * jnp.sin(X)).sum()), reduction=64)


def test_shard_map():
    mesh = jax.make_mesh((2,), ("x",))
    options = {"mesh": mesh, "in_specs": P("x"), "out_specs": P("x")}
    sharded = interop.jax_shard_map(lambda x: x - x.mean(), options)
    placed = jax.device_put(jnp.arange(4.0), jax.NamedSharding(mesh, P("x")))
    x = interop.torch_view(placed)
    assert sharded(x).tolist() == [-0.5, 0.5, -0.5, 0.5]
    mesh = jax.make_mesh((2,), ("x",), (jax.sharding.AxisType.Auto,))
    marked = interop.mark_sharding(interop.torch_view(X), jax.NamedSharding(mesh, P("x")))
    assert len(marked.jax().sharding.device_set) == 2


class Tied(nn.Module):
    """Two names for one parameter, and statistics that forward writes to."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.norm(self.first(x)))

    def twice(self, x):
        return self.forward(self.forward(x))


def test_jittable_module():
    torch.manual_seed(0)
    module, x = Tied(), torch.randn(4, 3)
    jitted = interop.JittableModule(copy.deepcopy(module))
    assert isinstance(jitted, Tied)
    assert len(jitted.params) == 4
    array = interop.to_jax(x)
    for _ in range(2):
        assert_close(jitted(array).jax(), module(x).detach().numpy(), reduction=64)
    mean = module.norm.running_mean.numpy()
    assert_close(jitted.buffers["norm.running_mean"].jax(), mean, reduction=64)
    jitted.make_jitted("twice")
    assert_close(jitted.twice(array).jax(), module.twice(x).detach().numpy(), reduction=256)
    buffers = {k: v.clone() for k, v in jitted.buffers.items()}
    call = lambda w: jitted.functional_call("forward", w, buffers, array).pow(2).sum()
    _, grads = interop.jax_value_and_grad(call)(jitted.params)
    module(x).pow(2).sum().backward()
    want = {k: v.grad.numpy() for k, v in module.named_parameters()}
    assert_close({k: np.asarray(v) for k, v in grads.items()}, want, reduction=2**12)
    by_function = jitted.functional_call(Tied.twice, jitted.params, jitted.buffers, array)
    assert by_function.shape == (4, 3)


def test_compile():
    x = interop.to_jax(torch.ones(1, 2))
    assert type(interop.compile(nn.Linear(2, 2))(x)) is EagerTensor
    assert_close(interop.compile(torch.sin)(x).jax(), jnp.sin(x.jax()))


def test_extract_jax():
    module = nn.Linear(3, 2)
    weights, function = interop.extract_jax(module)
    want = module(torch.from_numpy(np.array(X))).detach().numpy()
    assert_close(np.asarray(jax.jit(function)(weights, (X,))), want, reduction=3)


def test_a_train_step_of_optax():
    with anyjax.torch.on_jax():
        model, x, label = nn.Linear(3, 1), interop.torch_view(X), torch.ones(2, 1)
    call = lambda weights, buffers, args: torch.func.functional_call(model, weights, args)
    step = interop.make_train_step(call, nn.functional.mse_loss, optax.sgd(0.01))
    step = interop.jax_jit(step)
    weights = {k: v.detach() for k, v in model.named_parameters()}
    opt_state = interop.call_jax(optax.sgd(0.01).init, weights)
    losses = []
    for _ in range(3):
        loss, weights, opt_state = step(weights, {}, opt_state, (x,), label)
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for want in losses:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), label)
        assert_close(loss.item(), want, rtol=1e-5)
        loss.backward()
        optimizer.step()


def test_the_environment():
    env = interop.default_env()
    assert env is interop.default_env()
    with env, env:
        x = torch.ones(2)
    assert type(x) is EagerTensor
    assert type(torch.ones(2)) is torch.Tensor
    env.manual_seed(3)
    try:
        with env:
            first, second = torch.rand(3), torch.rand(3)
        env.manual_seed(torch.tensor(3))
        with env:
            assert torch.equal(torch.rand(3), first)
        assert not torch.equal(first, second)
        assert env.prng_key.dtype == jax.random.key(0).dtype
        assert (jax.random.key_data(env.get_and_rotate_prng_key()) != 0).any()
    finally:
        env._thread.keys = None
    assert env.t2j_iso({"x": x})["x"] is x.jax()
    assert env.j2t_iso([X])[0].jax() is X
    assert env.j2t_copy(X).tolist() == X.tolist()
    assert env.t2j_copy(torch.ones(2)).tolist() == [1, 1]
    assert type(env.to_xla(nn.Linear(2, 2)).weight) is EagerTensor
    with pytest.raises(Unsupported, match=r"anyjax\.lowers"):
        env.override_op_definition(torch.ops.aten.sin, torch.cos)


@pytest.mark.parametrize("switch", [interop.enable_globally, interop.disable_globally])
def test_there_is_no_global_switch(switch):
    with pytest.raises(Unsupported, match="anyjax has no global switch"):
        switch()


def test_shared_tensors_are_moved_once():
    module = nn.Linear(2, 2)
    module.twin = module.weight
    tensor = torch.ones(2)
    interop.to_jax(module)
    assert module.twin is module.weight
    first, second = interop.to_jax([tensor, tensor])
    assert first is second
    assert interop.to_jax(first) is first


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.history, self.power = nn.Linear(2, 2), [torch.ones(2)], 1
        self.scale = torch.full((2,), 2.0)

    def forward(self, x):
        self.history[0] += 1
        self.last = x.sum()
        return (self.linear(x) * 0 + 1) * self.scale**self.power


def test_attributes_of_a_jittable_module():
    with interop.default_env():
        jitted, x = interop.JittableModule(Scaled()), torch.ones(2)
        assert jitted(x).tolist() == [2, 2]
        jitted._model.scale.fill_(5)
        assert jitted(x).tolist() == [5, 5]
        jitted._model.power = 2
        assert jitted(2 * x).tolist() == [25, 25]
        assert jitted.history[0].tolist() == [4, 4]
        assert jitted.last.item() == 4  # no tracer of the program
        other = copy.deepcopy(jitted)
        other._model.scale.fill_(1)
        assert [other(x).tolist(), jitted(x).tolist()] == [[1, 1], [25, 25]]


def test_jittable_modules_inside_of_others():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    with interop.default_env():
        parent = nn.Sequential(interop.JittableModule(module), nn.Linear(2, 2))
        assert len(parent.state_dict()) == len(list(parent.parameters())) == 4
        first, x = parent[0], torch.ones(3, 2)
        assert (first(x) == 0).any()
        parent.eval()
        assert not (first(x) == 0).any()
        parent.to(torch.bfloat16)
        assert first(x.bfloat16()).dtype is torch.bfloat16
        outer = interop.JittableModule(parent)
        assert outer(x.bfloat16()).tolist() == parent(x.bfloat16()).tolist()
        with pytest.raises(anyjax.errors.Unsupported, match="float64"):
            parent.double()
    assert type(module[0].weight) is nn.Parameter  # the module that was given stays torch's


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "float8_e3m4", "float4_e2m1fn"])
def test_arrays_of_dtypes_that_torch_has_not(dtype):
    x = jnp.ones(2, dtype)
    assert interop.torch_view(x).to(torch.int32).tolist() == [1, 1]
    assert anyjax.from_torch(lambda x: x * 3)(x).tolist() == [3, 3]
    assert anyjax.torch.from_jax(lambda x: x.astype(dtype))(torch.ones(2)).tolist() == [1, 1]


def test_keys_are_no_tensors():
    with pytest.raises(anyjax.errors.Unsupported, match="key_data"):
        interop.torch_view(jax.random.key(0))


@pytest.mark.parametrize(
    "cut", [torch.detach, lambda x: x.data, lambda x: x.view(1, 2).detach()[0]]
)
def test_no_gradient_of_jax_comes_through_detach(cut):
    function = interop.jax_view(lambda x: (x * cut(x)).sum())
    assert jax.grad(function)(jnp.full(2, 3.0)).tolist() == [3, 3]


def test_writes_through_what_is_detached():
    def function(x):
        y = x * 1
        y.detach().mul_(2)
        return y

    assert interop.jax_view(function)(jnp.ones(2)).tolist() == [2, 2]
    assert interop.jax_jit(function)(interop.torch_view(jnp.ones(2))).tolist() == [2, 2]
