"""Flax modules in torch: values, training by torch's optimizers, state dicts, statistics, masks."""

from __future__ import annotations

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.torch import module_from_flax

X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)


class Network(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(jax.nn.relu(self.norm(self.first(x)))))


class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, x, train=False):
        x = linen.BatchNorm(use_running_average=not train)(linen.Dense(8)(x))
        return linen.Dense(2)(linen.Dropout(0.5, deterministic=not train)(x))


def linen_network():
    module = LinenNetwork()
    return module.bind(module.init(jax.random.key(0), X))


def close(a, b):
    np.testing.assert_allclose(a.detach(), b, rtol=1e-5, atol=1e-5)


def test_nnx_values_names_and_statistics():
    flax = Network(nnx.Rngs(0))
    module = module_from_flax(flax)
    names = {"first.kernel", "first.bias", "norm.scale", "norm.bias", "last.kernel", "last.bias"}
    assert {*dict(module.named_parameters())} == names
    flax.eval()
    close(module.eval()(torch.from_numpy(X)), flax(X))
    flax.train()
    flax(X)
    module.train()(torch.from_numpy(X))
    close(module.norm.mean, flax.norm.mean[...])
    close(module.norm.var, flax.norm.var[...])
    flax.eval()
    close(module.eval()(torch.from_numpy(X)), flax(X))


def test_masks_follow_torchs_generator():
    module = module_from_flax(Network(nnx.Rngs(0))).train()
    x = torch.from_numpy(X)
    torch.manual_seed(1)
    first, other = module(x), module(x)
    torch.manual_seed(1)
    assert torch.equal(module(x), first)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("build", [lambda: Network(nnx.Rngs(0)), linen_network])
def test_torchs_optimizers_train_it(build):
    module = module_from_flax(build()).eval()
    optimizer = torch.optim.Adam(module.parameters(), 0.05)
    x, y = torch.from_numpy(X), torch.from_numpy(X[:, :2]) * 2
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = ((module(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


def test_gradients_in_training_mode():
    """Between the forward pass and ``backward()`` the statistics are written."""
    flax = nnx.Sequential(nnx.Linear(3, 8, rngs=nnx.Rngs(0)), nnx.BatchNorm(8, rngs=nnx.Rngs(1)))
    module = module_from_flax(flax).train()
    (module(torch.from_numpy(X)) ** 3).sum().backward()
    flax.train()
    slopes = nnx.grad(lambda net: (net(X) ** 3).sum())(flax)
    for name, parameter in module.named_parameters():
        _, i, kind = name.split(".")
        close(parameter.grad, slopes["layers"][int(i)][kind][...])
    assert module.get_parameter("layers.0.kernel").grad.abs().max() > 0.1
    close(module.get_buffer("layers.1.mean"), flax.layers[1].mean[...])


def test_state_dicts_round_trip(tmp_path):
    module, other = (module_from_flax(Network(nnx.Rngs(i))).eval() for i in range(2))
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    other.load_state_dict(torch.load(tmp_path / "weights.pt"))
    x = torch.from_numpy(X)
    assert torch.equal(module(x), other(x))


def test_linen_values_and_statistics():
    bound = linen_network()
    module = module_from_flax(bound)
    close(module.eval()(torch.from_numpy(X)), bound(X))
    expected, variables = bound.unbind()
    _, written = expected.apply(
        variables, X, train=True, mutable=["batch_stats"], rngs={"dropout": jax.random.key(0)}
    )
    module.train()(torch.from_numpy(X), train=True)
    mean = dict(module.named_buffers())["batch_stats.BatchNorm_0.mean"]
    close(mean, written["batch_stats"]["BatchNorm_0"]["mean"])


def test_in_a_converted_torch_model():
    inner = module_from_flax(Network(nnx.Rngs(0)))
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), inner).eval()
    model = anyjax.from_torch(module)
    assert "1.first.kernel" in model.params
    close(module(torch.from_numpy(X)), model(X))
    jaxpr = str(jax.make_jaxpr(lambda p: model.apply(p, X))(model.params))
    assert "callback" not in jaxpr
    assert float(
        jnp.abs(jax.grad(lambda p: model.apply(p, X).sum())(model.params)["1.last.bias"]).sum()
    )


def test_what_is_refused():
    with pytest.raises(WrongArguments, match="module_from_flax of Linear"):
        module_from_flax(torch.nn.Linear(3, 2))
    with pytest.raises(WrongArguments, match="with variables"):
        module_from_flax(LinenNetwork())


def test_the_users_module_keeps_its_mode():
    dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    for set_mode in (dropout.eval, dropout.train):
        set_mode()
        mode = dropout.deterministic
        module_from_flax(dropout)
        assert dropout.deterministic is mode


class Noisy(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(x) + jax.random.normal(self.make_rng("noise"), x.shape)


def test_streams_of_any_name():
    keys = {"params": jax.random.key(0), "noise": jax.random.key(1)}
    module = module_from_flax(Noisy().bind(Noisy().init(keys, jnp.ones((1, 2)))))
    first, second = module(torch.ones(1, 2)), module(torch.ones(1, 2))
    assert (first != second).all()
    with pytest.raises(Unsupported, match=r'random numbers in evaluation mode(.|\n)*"noise"'):
        module.eval()(torch.ones(1, 2))


class Named(nnx.Module):
    def __init__(self, rngs):
        self.type, self.half = nnx.Linear(2, 2, rngs=rngs), nnx.Param(jnp.full(2, 0.5))

    def __call__(self, x):
        return self.type(x) * self.half


def test_names_of_torchs_own_methods():
    module = Named(nnx.Rngs(0))
    converted = module_from_flax(module)
    assert {*converted.state_dict()} == {"type.kernel", "type.bias", "half"}
    x = np.ones((1, 2), np.float32)
    np.testing.assert_allclose(converted(torch.tensor(x)).detach(), module(x), rtol=1e-6)
    loaded = module_from_flax(Named(nnx.Rngs(1)))
    loaded.load_state_dict(converted.state_dict())
    np.testing.assert_allclose(loaded(torch.tensor(x)).detach(), module(x), rtol=1e-6)


def test_partitioned_parameters():
    initializer = linen.with_partitioning(linen.initializers.lecun_normal(), (None, "model"))
    layer = linen.Dense(2, kernel_init=initializer)
    variables = layer.init(jax.random.key(0), jnp.ones((1, 2)))
    module = module_from_flax(layer.bind(variables))
    expected = layer.apply(linen.meta.unbox(variables), jnp.ones((1, 2)))
    np.testing.assert_allclose(module(torch.ones(1, 2)).detach(), expected, rtol=1e-6)


def test_pickles_and_copies():
    module, x = module_from_flax(Named(nnx.Rngs(0))), torch.ones(3, 2)
    for other in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert torch.equal(other(x), module(x))
