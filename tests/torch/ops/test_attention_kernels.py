"""Models whose attention is large, lowered for a TPU and a GPU that are not here."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import anyjax
from tests.tolerance import assert_close

AUTO, EXPLICIT = jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit
LENGTH = 256


class Layer(torch.nn.Module):
    """Causal attention over itself, and a residual."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return x + self.out(
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .flatten(2)
        )


def build(layers=2):
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Layer() for _ in range(layers))).bfloat16()


X = np.random.default_rng(0).normal(size=(4, LENGTH, 32)).astype(jnp.bfloat16)


def kernels(function, *args, platform="tpu"):
    """How many calls of attention's kernels are in a program for a platform: layers of a TPU share
    a function around each. There is no array of all pairs.
    """
    text = jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text()
    assert f"{LENGTH}x{LENGTH}x" not in re.sub(r"dense<.*?>|backend_config = \".*?\"", "", text)
    return len(re.findall(r"@(?:tpu_custom_call|__cudnn\$fmha\w+)\(", text))


def loss_of(model):
    return lambda params, x: (model.apply(params, x).astype(jnp.float32) ** 2).sum()


@pytest.mark.parametrize(("platform", "forward", "both"), [("tpu", 1, 3), ("cuda", 2, 4)])
def test_forward_and_gradient(platform, forward, both):
    model = anyjax.from_torch(build())
    assert kernels(model.apply, model.params, X, platform=platform) >= forward
    assert kernels(jax.grad(loss_of(model)), model.params, X, platform=platform) >= both


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
def test_on_a_mesh(kind):
    model = anyjax.from_torch(build())
    mesh = jax.make_mesh((2, 4), ("data", "model"), (kind,) * 2)
    model = anyjax.parallel.shard(model, mesh, "fsdp")
    x = jax.device_put(X, jax.NamedSharding(mesh, jax.P("data")))
    assert kernels(model.apply, model.params, x) >= 1
    assert kernels(jax.grad(loss_of(model)), model.params, x) >= 3
    whole = anyjax.from_torch(build())
    assert_close(model(x), whole(X), reduction=64)


def test_in_a_loop_of_layers():
    model = anyjax.from_torch(build(4))
    rolled = anyjax.transforms.roll(model, X)
    assert kernels(rolled.apply, rolled.params, X) == 1
    assert kernels(jax.grad(loss_of(rolled)), rolled.params, X) == 3
    assert_close(rolled(X), model(X), reduction=64)


def test_under_vmap_and_rematerialization():
    model = anyjax.from_torch(build())
    stacked = np.stack([X, X])
    assert kernels(jax.vmap(model.apply, (None, 0)), model.params, stacked) == 1
    step = anyjax.train.make_step(lambda m, x: loss_of(m)(m.params, x), optax.sgd(1e-3), remat=True)
    state = anyjax.train.TrainState.create(model, optax.sgd(1e-3))
    program = step.program(state).trace(state, X).lower(lowering_platforms=("tpu",)).as_text()
    assert program.count("@tpu_custom_call(") >= 3


def test_a_saved_program_has_each_platforms_kernel(tmp_path):
    model = anyjax.from_torch(build(1))
    model.save(tmp_path / "m", X, platforms=("cpu", "tpu"))
    assert_close(anyjax.load(tmp_path / "m")(X), model(X), reduction=64)
    program = jax.export.deserialize(bytearray((tmp_path / "m" / "call-0.jax").read_bytes()))
    assert "tpu_custom_call" in program.mlir_module()
