"""Each name of torchax that tpu-inference, a server for TPUs, uses; with what it is used for."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jax.sharding import NamedSharding, PartitionSpec

from anyjax import torchax
from anyjax.torchax.interop import jax_view, torch_view
from anyjax.torchax.ops import ops_registry

ENV = torchax.default_env()


def ones(*shape: int) -> torch.Tensor:
    return torch_view(jnp.ones(shape))


def switched() -> bool:
    torchax.enable_globally()
    try:
        return torch.ones(2, device="jax").device.type == "jax"
    finally:
        torchax.disable_globally()


def in_environment(function: Callable[[], object]) -> object:
    with ENV:
        return function()


def functional() -> bool:
    linear = torch.nn.Linear(2, 2)
    weights = {name: torch.zeros_like(x).to("jax") for name, x in linear.named_parameters()}
    out = torch.func.functional_call(linear, weights, (ones(1, 2),), tie_weights=False)
    return out.tolist() == [[0, 0]]


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
              enable_gqa=False, *, mesh):  # fmt: skip
    return mesh * query


def served(register: Callable[..., object], target: object, call: Callable[..., object]) -> object:
    function = functools.partial(attention, mesh=7)
    register(target, function, is_jax_function=True, needs_env=False)
    x = ones(1, 2, 3, 4)
    return in_environment(lambda: call(x, x, x).mean() == 7)


def jittable() -> bool:
    model = torchax.interop.JittableModule(torch.nn.Linear(2, 1, bias=False))
    model.params["weight"] = torch_view(jnp.full((1, 2), 3.0))
    return isinstance(model, torch.nn.Linear) and model(ones(1, 2)).item() == 6


@torch.library.custom_op("torchax_tests::sdpa", mutates_args=())
def sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return query.clone()


def sharded() -> bool:
    mesh = jax.make_mesh((8,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("model"))
    x = torch_view(jax.device_put(jax_view(ones(8)), sharding))
    parameter = torch.nn.Parameter(x, requires_grad=False)
    moved = ones(8).apply_jax_(jax.device_put, sharding)
    return parameter.jax_device == moved.jax_device == sharding


def loaded() -> bool:
    parameter = torch.nn.Parameter(ones(2), requires_grad=False)
    parameter.data = torch_view(jnp.zeros(2))
    return parameter.tolist() == [0, 0] and isinstance(parameter, torchax.tensor.Tensor)


def overridden() -> bool:
    env = torchax.tensor.Environment()
    env.override_op_definition(torch.ops.torchax_tests.sdpa.default, lambda q, k, v: q * 5)
    with env:
        return torch.ops.torchax_tests.sdpa(*[ones(2)] * 3).tolist() == [5, 5]


mappings, registry = torchax.ops.mappings, ops_registry
USES: dict[str, Callable[[], object]] = {
    "torchax.default_env": lambda: in_environment(lambda: ENV.enabled),
    "torchax.enable_globally, disable_globally": switched,
    "torchax.torch": lambda: torchax.torch.Tensor is torch.Tensor,
    "torchax.tensor.Tensor": lambda: isinstance(ones(2), torchax.tensor.Tensor),
    "torchax.tensor.View, torchax.view.View": lambda: (
        isinstance(ones(3)[1:], torchax.tensor.View) and torchax.view.View is torchax.tensor.View
    ),
    "the module of their classes": lambda: type(ones(2)).__module__.startswith("torchax"),
    "Tensor.jax, Tensor._elem": lambda: ones(2)._elem.tolist() == ones(2).jax().tolist(),
    "Tensor.jax_device": lambda: ones(2).jax_device == jax.devices("cpu")[0],
    "Tensor.jax_device of a sharding, Tensor.apply_jax_": sharded,
    "Tensor.data": loaded,
    "Tensor.torch, Tensor.cpu, Tensor.numpy": lambda: (
        type(ones(2).torch()) is type(ones(2).cpu()) is torch.Tensor and ones(2).numpy().sum() == 2
    ),
    "x.to(device='jax')": lambda: in_environment(
        lambda: torch.tensor([[1, 2, 3]], dtype=torch.long).to(device="jax").device.type == "jax"
    ),
    "interop.torch_view, interop.jax_view": lambda: (
        jax_view(torch_view({"a": [jnp.ones(2), None, 3]}))["a"][1:] == [None, 3]
    ),
    "interop.call_jax": lambda: torchax.interop.call_jax(jnp.sum, ones(2)).item() == 2,
    "interop.call_torch": lambda: torchax.interop.call_torch(torch.sum, jnp.ones(2)) == 2,
    "interop.jax_jit": lambda: torchax.interop.jax_jit(torch.neg)(ones(1)).item() == -1,
    "interop.extract_all_buffers": lambda: (
        set(torchax.interop.extract_all_buffers(torch.nn.Linear(2, 1))[0]) == {"weight", "bias"}
    ),
    "interop.JittableModule, its params": jittable,
    "torch.func.functional_call(tie_weights=False)": lambda: in_environment(functional),
    "mappings.t2j, j2t": lambda: np.array_equal(
        mappings.j2t(mappings.t2j(torch.eye(2), use_dlpack=False)), np.eye(2)
    ),
    "mappings.t2j_dtype, j2t_dtype": lambda: (
        mappings.j2t_dtype(mappings.t2j_dtype(torch.bfloat16)) is torch.bfloat16
        and mappings.j2t_dtype(jnp.int4.dtype) is torch.int8
    ),
    "mappings.TORCH_DTYPE_TO_JAX": lambda: (
        mappings.TORCH_DTYPE_TO_JAX[torch.float8_e4m3fn] == jnp.float8_e4m3fn
    ),
    "ops_registry.register_torch_function_op": lambda: served(
        registry.register_torch_function_op, F.scaled_dot_product_attention,
        F.scaled_dot_product_attention,
    ),
    "ops_registry.register_torch_dispatch_op": lambda: served(
        registry.register_torch_dispatch_op, torch.ops.torchax_tests.sdpa,
        torch.ops.torchax_tests.sdpa,
    ),
    "jtorch.register_function": lambda: served(
        lambda target, function, **options: torchax.ops.jtorch.register_function(target, **options)(
            function
        ),
        F.scaled_dot_product_attention, F.scaled_dot_product_attention,
    ),
    "Environment.override_op_definition": overridden,
    "Environment.config, load_ops": lambda: (
        ENV.config.use_dlpack_for_data_conversion is False and ENV.load_ops() is None
    ),
    "Environment.to_xla": lambda: ENV.to_xla(torch.ones(2)).device.type == "jax",
    "Environment.j2t_iso, t2j_iso": lambda: ENV.t2j_iso(ENV.j2t_iso([jnp.ones(1)]))[0].sum() == 1,
    "Environment.j2t_copy, t2j_copy": lambda: (
        ENV.j2t_copy(ENV.t2j_copy({"x": torch.ones(1)}))["x"].item() == 1
    ),
    "torch.accelerator": lambda: torch.accelerator.memory_allocated() >= 0,
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_use(name, monkeypatch):
    for table in ("all_aten_ops", "all_torch_functions"):
        monkeypatch.setattr(ops_registry, table, {})
    assert USES[name]()
