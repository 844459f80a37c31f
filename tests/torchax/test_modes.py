"""What torch code means in an environment: the device "jax", and functions in torch's place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from anyjax import torchax
from anyjax.torchax import interop
from anyjax.torchax.ops import jaten, jlibrary, jtorch, ops_registry
from anyjax.torchax.tensor import Environment, Tensor, View

ENV = torchax.default_env()
ARRAY = jnp.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    for name in ("all_aten_ops", "all_torch_functions"):
        monkeypatch.setattr(ops_registry, name, {})
    monkeypatch.setattr(ENV, "_ops", {})


@torch.library.custom_op("torchax_tests::write", mutates_args=("cache",))
def write(cache: torch.Tensor, x: torch.Tensor) -> None:
    cache[0] = x


MAKERS = {
    "ones": lambda device: torch.ones(2, device=device),
    "tensor": lambda device: torch.tensor([1.0, 1], device=device),
    "as_tensor": lambda device: torch.as_tensor([1.0, 1], device=device),
    "asarray": lambda device: torch.asarray([1.0, 1], device=device),
    "from a tensor": lambda device: torch.as_tensor(torch.ones(2), device=device),
    "from numpy": lambda device: torch.from_numpy(np.ones(2, np.float32)).to(device),
    "full": lambda device: torch.full((2,), 1.0, device=device),
    "arange": lambda device: torch.arange(1.0, 2.0, 0.5, device=device).floor(),
    "ones_like": lambda device: torch.ones_like(torch.zeros(2), device=device),
    "new_ones": lambda device: torch.zeros(1).new_ones(2, device=device),
    "empty": lambda device: torch.empty(2, device=device).fill_(1),
    "eye": lambda device: torch.eye(2, device=device).sum(0),
    "hann": lambda device: torch.hann_window(4, device=device)[2:].ceil(),
    "rand": lambda device: torch.rand(2, device=device).ceil(),
    "to": lambda device: torch.ones(2).to(device),
    "to dtype": lambda device: torch.ones(2, dtype=torch.int32).to(device, torch.float32),
    "to named": lambda device: torch.ones(2).to(dtype=torch.float32, device=device, copy=True),
    "module": lambda device: torch.nn.LayerNorm(2).to(device).weight.detach(),
    "cuda": lambda device: torch.ones(2).cuda() if device != "cpu" else torch.ones(2),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("device", ["jax", "jax:0", "cuda", torch.device("jax")])
def test_tensors_of_the_device(name, device):
    with ENV:
        x = MAKERS[name](device)
        assert isinstance(x, Tensor) and isinstance(x.jax(), jax.Array)
        assert x.device == torch.device("jax:0")
        assert x.device.type == "jax"
        assert x.jax_device.platform == "cpu"
        assert x._elem is x.jax()
        assert x.tolist() == [1, 1]
        usual = MAKERS[name]("cpu")
        assert type(usual) is not Tensor and usual.tolist() == [1, 1]


def test_the_device_of_another_tensor_and_the_default_one():
    with ENV:
        x = torch.ones(2, device="jax")
        assert type(torch.zeros(3, device=x.device)) is Tensor
        assert type(torch.zeros(3).to(x)) is Tensor
        assert type(torch.zeros(3).to(x.device)) is Tensor
        assert type(torch.zeros(3)) is torch.Tensor
        with torch.device("jax"):
            assert type(torch.nn.Linear(3, 2).weight.detach()) is Tensor
        torch.set_default_device("jax")
        try:
            assert type(torch.tensor([1.0])) is Tensor
            assert type(torch.ones(2)) is Tensor
        finally:
            torch.set_default_device(None)
        assert type(x.to("cpu")) is type(x.cpu()) is torch.Tensor
        assert x.to("cpu", torch.bfloat16).dtype is torch.bfloat16
        assert x.to(torch.ones(1)).device.type == "cpu"


def test_views_and_tensors():
    with ENV:
        x = torch.zeros(4, 4, device="jax")
        view = x[1:3][:, :2]
        assert type(x) is Tensor and type(view) is View
        assert isinstance(view, Tensor)
        assert type(x[:]) is View and type(x.reshape(16)) is Tensor and type(view + 1) is Tensor
        view.add_(1)
        assert x.sum() == 4
        parameter = torch.nn.Parameter(x)
        assert isinstance(parameter, torch.nn.Parameter) and isinstance(parameter, Tensor)


def test_gradients_of_torch():
    with ENV:
        layer = torch.nn.Linear(3, 1).to("jax")
        layer(torch.ones(2, 3, device="jax")).sum().backward()
        assert layer.weight.grad.tolist() == [[2, 2, 2]]
        assert layer.weight.grad.device.type == "jax"


def test_an_override_counts_in_its_environment_alone():
    env, query = Environment(), torch.ones(1, 2, 3, 4)
    env.override_op_definition(F.scaled_dot_product_attention, interop.torch_view(lambda q, *_: -q))
    results = {}
    for name, context in (("it", env), ("another", ENV)):
        with context:
            x = query.to("jax")
            results[name] = F.scaled_dot_product_attention(x, x, x).mean().item()
            assert F.scaled_dot_product_attention(query, query, query).mean() == 1  # torch's own
    model = anyjax.from_torch(lambda x: F.scaled_dot_product_attention(x, x, x))
    assert results == {"it": -1, "another": 1}
    assert model(query.numpy()).mean() == 1


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
    assert isinstance(query, jax.Array) or "traced" in str(type(query)).lower()
    return query * 2


def test_register_function():
    jtorch.register_function(F.scaled_dot_product_attention)(attention)

    class Attends(torch.nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    with ENV:
        x = torch.full((1, 2, 3, 4), 3.0, device="jax").requires_grad_()
        out = F.scaled_dot_product_attention(x, x, x)
        out.sum().backward()
        assert out.mean() == 6
        assert x.grad.mean() == 2  # JAX's derivative
        assert interop.jax_jit(Attends())(x.detach()).mean() == 6
    states, function = torchax.extract_jax(Attends())
    assert jax.jit(function)(states, (jnp.ones((1, 2, 3, 4)),)).mean() == 2


def test_operators_are_served_wherever_they_come_from():
    jaten.op(torch.ops.aten.silu)(lambda x: x + 100)
    ENV.override_op_definition(torch.ops.aten.tanh.default, lambda x: torch.tanh(x) * 10)
    with ENV:
        x = torch.zeros(2, device="jax")
        assert F.silu(x).tolist() == torch.nn.SiLU()(x).tolist() == [100, 100]
        assert torch.ops.aten.silu(x).tolist() == [100, 100]
        assert torch.ops.aten.silu.default(x).tolist() == [100, 100]
        assert interop.jax_jit(F.silu)(x).tolist() == [100, 100]
        assert torch.tanh(x + 100).tolist() == [10, 10]  # inside of it tanh is torch's
        assert F.silu(torch.zeros(2)).tolist() == [0, 0]
        ENV.override_op_definition(torch.ops.aten.pow, lambda x, _: x + 100)
        assert F.mse_loss(x, x) == 100  # of which torch makes other operators
    assert torchax.ops.all_aten_jax_ops().keys() == {torch.ops.aten.silu}
    ENV._ops.clear()
    with ENV:
        assert F.mse_loss(x, x) == 0  # no program remains of it


def test_an_operator_that_writes():
    def served(cache, x):
        cache[0] = 2 * x

    ENV.override_op_definition(torch.ops.torchax_tests.write.default, served)

    @jax.jit
    def step(cache, x):
        with ENV:
            cache, x = interop.torch_view((cache, x))
            torch.ops.torchax_tests.write(cache, x)
            return interop.jax_view(cache)

    assert step(jnp.zeros((2, 2)), jnp.ones(2)).tolist() == [[2, 2], [0, 0]]


def test_functions_of_tensors_that_take_the_environment():
    jtorch.register_function(torch.sinc, is_jax_function=False, needs_env=True)(
        lambda x, env: x * (7 if env is ENV else 0)
    )
    with ENV:
        assert torch.sinc(torch.ones(1, device="jax")).item() == 7


def test_composites_have_names_in_programs():
    jlibrary.register_jax_composite("mine.silu", jaten._aten_silu, torch.ops.aten.silu)
    text = jax.jit(interop.jax_view(F.silu)).lower(ARRAY).as_text()
    assert "call @mine.silu" in text
    jlibrary.register_torch_composite("mine.gelu", lambda x: x * 3, torch.ops.aten.gelu)
    with ENV:
        assert F.gelu(torch.ones(1, device="jax")).item() == 3
    with pytest.raises(AttributeError, match="no attribute '_aten_nothing'"):
        _ = jaten._aten_nothing


def test_large_attention_is_our_kernel():
    x = jax.ShapeDtypeStruct((1, 2, 4096, 64), jnp.float32)
    function = interop.jax_view(F.scaled_dot_product_attention)
    primitives = {e.primitive.name for e in jax.make_jaxpr(function)(x, x, x).eqns}
    assert "dot_general" not in primitives, primitives


def test_printing_each_operator(capsys):
    env = Environment(torchax.config.Configuration(debug_print_each_op_operands=True))
    env.config.debug_print_each_op = True
    with env:
        torch.ones(2, device="jax") + 1
    printed = capsys.readouterr().err
    assert "DISPATCH: aten::add.Tensor" in printed and "torch.float32[2]" in printed
