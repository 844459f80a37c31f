"""Programs of torchax's users: each module of the package."""

from __future__ import annotations

import sys
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import torch.nn.functional as F
from jax.sharding import NamedSharding, PartitionSpec

from anyjax import torchax
from anyjax.errors import Unsupported
from anyjax.torchax import export, interop, mesh_util, train
from anyjax.torchax.flax import FlaxNNModule
from anyjax.torchax.ops import mappings
from anyjax.torchax.ops.ops_registry import Operator
from anyjax.torchax.tensor import Environment, Tensor, View
from tests.torchax.test_faults import Scaled

ENV = torchax.default_env()


def on_jax(*values: float) -> torch.Tensor:
    return interop.torch_view(jnp.array(values))


@pytest.mark.parametrize(
    "name", ["int4", "uint4", "float4_e2m1fn", "float8_e4m3fn", "float8_e8m0fnu", "int2"]
)
def test_arrays_of_few_bits_cross_over_as_they_are(name):
    array = jnp.ones((2, 4), name)
    x = interop.torch_view({"weight": array})["weight"]
    parameter = torch.nn.Parameter(x, requires_grad=False)
    assert interop.jax_view(x) is array and interop.jax_view(parameter) is array
    for view in (x.T, x[0], x.reshape(8), x.detach(), interop.jax_jit(lambda w: w.T)(x)):
        assert interop.jax_view(view).dtype == array.dtype
    assert x.to(torch.float32).sum() == 8
    with ENV:
        x[0] = x[1]
    assert interop.jax_view(x).dtype == array.dtype


def test_random_numbers_of_programs_with_shardings():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    with ENV:
        x = torch.ones(64, device="jax")
        for options in ({"in_shardings": rows}, {"in_shardings": (rows,), "out_shardings": rows}):
            drop = interop.jax_jit(F.dropout, options)
            first, second = drop(x), drop(x)
            assert first.jax_device.spec == PartitionSpec("x")
            assert not torch.equal(first, second)
        ENV.manual_seed(3)
        key = ENV.prng_key
        seeded = torch.rand(3, device="jax")
        ENV.prng_key = key
        assert torch.equal(torch.rand(3, device="jax"), seeded)
        assert (
            torch.equal(interop.jax_jit(lambda: drop(x))(), interop.jax_jit(lambda: x)()) is False
        )
    with ENV.override_property(prng=key, mesh=mesh):
        assert ENV.param.mesh is mesh and ENV.param.prng is not None


def test_install_and_its_names(monkeypatch):
    torchax.install()
    names: dict[str, Any] = {}
    exec("import torchax.interop, torchax.ops.mappings; import torchax as tx", names)
    exec("from torchax import tensor; from torchax.view import View", names)
    assert names["tx"] is names["torchax"] is torchax and torchax.__version__
    assert names["torchax"].interop is interop and names["tensor"].Tensor is Tensor
    assert names["torchax"].ops.mappings is mappings and names["View"] is View
    assert Tensor.__module__.startswith("torchax")
    monkeypatch.setitem(sys.modules, "torchax", type(sys)("torchax"))
    with pytest.raises(Unsupported, match="after torchax was imported"):
        torchax.install()


def test_enabled_globally():
    torchax.enable_globally()
    try:
        torchax.enable_globally()
        assert ENV.enabled and type(torch.ones(1, device="jax")) is Tensor
        with torchax.disable_temporarily():
            assert not ENV.enabled
        assert ENV.enabled
    finally:
        torchax.disable_globally()
    assert not ENV.enabled


def test_dtypes_and_copies():
    assert mappings.t2j_dtype(torch.float4_e2m1fn_x2) == jnp.float4_e2m1fn
    assert mappings.j2t_dtype(jnp.dtype("uint4")) is torch.uint8
    assert mappings.TORCH_DTYPE_TO_JAX[torch.bfloat16] == jnp.bfloat16
    for function, dtype in ((mappings.t2j_dtype, torch.quint8), (mappings.j2t_dtype, "x")):
        with pytest.raises(RuntimeError, match="unknown type"):
            function(dtype)
    sparse = torch.eye(2).to_sparse()
    assert mappings.t2j(sparse).tolist() == mappings.j2t(jnp.eye(2)).tolist() == [[1, 0], [0, 1]]


def test_autocast_and_its_property():
    with ENV, torchax.amp.autocast("jax", env=ENV):
        x = torch.ones(2, 2, device="jax")
        assert (x @ x).dtype is torch.bfloat16
        assert ENV.param.autocast_dtype is torch.bfloat16
        text = jax.jit(interop.jax_view(torch.matmul)).lower(jnp.ones((2, 2)), jnp.ones((2, 2)))
        assert "bf16" in text.as_text()
    assert ENV.param.autocast_dtype is None


def test_training_with_optax_and_a_loop_of_layers():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    x = torch.randn(2, 4)
    expected = torch.nn.Sequential(*layers)(x)
    loop = train.ScannedModule(layers)
    with ENV:
        model = loop.to("jax")
        np.testing.assert_allclose(model(x.to("jax")).jax(), expected.detach(), rtol=1e-5)
        weights = {name: w.detach() for name, w in model.named_parameters()}
        tx = optax.sgd(0.1)
        step = train.make_train_step(
            lambda weights, buffers, args: torch.func.functional_call(model, weights, args),
            F.mse_loss, tx,
        )  # fmt: skip
        step = interop.jax_jit(step, {"donate_argnums": (0,)})
        opt_state = interop.call_jax(tx.init, weights)
        losses = []
        for _ in range(3):
            args = {}, opt_state, (x.to("jax"),), torch.zeros(2, 4, device="jax")
            loss, weights, opt_state = step(weights, *args)
            losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


def test_flax_modules():
    module = flax.linen.Dense(3)
    x = jnp.ones((2, 4))
    expected = module.apply(module.init(ENV.prng_key, x), x)
    wrapped = FlaxNNModule(ENV, module, (x,))
    assert [*wrapped.state_dict()] == ["_params.params.kernel", "_params.params.bias"] or sorted(
        wrapped.state_dict()
    ) == ["_params.params.bias", "_params.params.kernel"]
    np.testing.assert_allclose(wrapped(x).jax(), expected, rtol=1e-6)
    call = interop.jax_jit(lambda w, x: torch.func.functional_call(wrapped, w, (x,)))
    np.testing.assert_allclose(call(wrapped.state_dict(), interop.torch_view(x)).jax(), expected)


def test_checkpoints(tmp_path):
    with ENV:
        state = {"weight": torch.ones(2, device="jax"), "step": jnp.zeros(())}
    torchax.save_checkpoint(state, str(tmp_path / "run"), 3)
    assert torchax.load_checkpoint(str(tmp_path / "run"))["weight"].tolist() == [1, 1]
    torch.save({"weight": torch.ones(2)}, tmp_path / "file.pt")
    assert isinstance(torchax.load_checkpoint(str(tmp_path / "file.pt"))["weight"], jax.Array)
    with pytest.raises(FileNotFoundError):
        torchax.load_checkpoint(str(tmp_path / "nothing"))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # by torch.export itself
def test_exported_programs_of_open_sizes():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(torch.cat([x, x]))

    model, x = Model(), torch.randn(4, 3)
    dim = torch.export.Dim("rows", min=3, max=10)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: dim},))
    weights, function = export.exported_program_to_jax(program)
    np.testing.assert_allclose(
        jax.jit(function)(weights, (x.numpy(),))[0], model(x).detach(), rtol=1e-5
    )
    weights, exported = export.exported_program_to_stablehlo(program)
    assert "tensor<?x3xf32>" in str(exported.mlir_module())
    out = exported.call(weights, (jnp.ones((5, 3)),))
    assert out[0].shape == (10, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", align_corners=False),
        lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] + 1), mode="nearest"),
        lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
        lambda x: F.adaptive_max_pool2d(x, 1),
        lambda x: torch.linspace(-1, x.shape[3], x.shape[2]),
    ],
    ids=["resized", "resized by its sizes", "adaptive mean", "adaptive maximum", "linspace"],
)
def test_open_height_and_width(function):
    class Calls(torch.nn.Module):
        def forward(self, x):
            return function(x)

    states, pure = torchax.extract_jax(Calls())
    height, width = jax.export.symbolic_shape("h, w")
    spec = jax.ShapeDtypeStruct((1, 2, height, width), jnp.float32)
    program = jax.export.export(jax.jit(pure))(states, (spec,))
    for shape in ((1, 2, 5, 6), (1, 2, 8, 11)):
        x = torch.randn(shape)
        out = program.call(states, (x.numpy(),))
        np.testing.assert_allclose(out, function(x), atol=1e-5)


def test_open_sizes_with_functions_in_the_place_of_torchs(monkeypatch):
    monkeypatch.setattr(ENV, "_ops", {})
    (rows,) = jax.export.symbolic_shape("rows")
    spec = jax.ShapeDtypeStruct((rows, 2), jnp.float32)
    option = {"is_user_defined": True, "needs_env": False, "is_view_op": False}
    seven = Operator(F.silu, lambda x, inplace=False: x * 0 + 7, is_jax_function=True, **option)
    ENV._ops[F.silu] = seven
    states, pure = torchax.extract_jax(torch.nn.SiLU())
    program = jax.export.export(jax.jit(pure))(states, (spec,))
    assert program.call(states, (jnp.ones((1, 2)),)).tolist() == [[7, 7]]
    ENV._ops[torch.ops.aten.silu] = seven
    with pytest.raises(Unsupported, match="in a program of open sizes"):
        jax.export.export(jax.jit(lambda *args: pure(*args)))(states, (spec,))
    with pytest.raises(Unsupported, match="of the shape"):
        jax.export.export(jax.jit(interop.jax_view(F.relu)))(spec)


def test_weights_are_made_where_they_lie():
    mesh = mesh_util.Mesh.fsdp_mesh()
    with ENV:
        model = mesh.initialize_model_sharded(torch.nn.Linear, (8, 8))
        assert len(model.weight.jax().addressable_shards) == jax.device_count()
        again = torch.nn.Linear(8, 8).to("jax")
        mesh.shard_model(again)
        assert again.weight.jax_device.spec == PartitionSpec("fsdp", None)
    with pytest.raises(AssertionError, match="Unable to find a dim to shard"):
        mesh_util.SingleAxisSharder("x", 4)("w", torch.ones(5, 7))


def test_all_tensors_of_a_module():
    module = torch.nn.Sequential(Scaled(), torch.nn.BatchNorm1d(2))
    params, buffers = interop.extract_all_buffers(module)
    assert set(params) == {"0.weight", "1.weight", "1.bias"}
    assert set(buffers) == {"0.offset", "1.running_mean", "1.running_var", "1.num_batches_tracked"}
    interop.set_all_buffers(module, {"0.weight": torch.zeros(2)}, {"0.offset": torch.ones(2)})
    assert module[0].weight.tolist() == [0, 0] and module[0].offset.tolist() == [1, 1]


def test_extract_jax_leaves_the_module_where_it_is():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    states, function = torchax.extract_jax(module)
    assert "1.weight" not in states and type(module[0].weight.data) is torch.Tensor
    assert {"0.weight", "1.weight"} < set(torchax.extract_jax(module, dedup_parameters=False)[0])
    x = np.ones((2, 3), np.float32)
    expected = module(torch.from_numpy(x)).detach()
    np.testing.assert_allclose(jax.jit(function)(states, (x,)), expected, rtol=1e-5)
    compiled = torchax.compile(module)
    np.testing.assert_allclose(
        compiled(interop.torch_view(jnp.asarray(x))).jax(), expected, rtol=1e-5
    )
    with pytest.raises(RuntimeError, match="dynamo mode"):
        torchax.compile(module, torchax.CompileOptions(mode="dynamo"))


def test_tensors_have_torchax_methods():
    x = on_jax(1.0, 2)
    assert x.apply_jax(jnp.sum).item() == 3
    assert x.apply_jax_(jnp.negative).tolist() == [-1, -2]
    x._elem = jnp.zeros(3)
    assert x.shape == (3,) and "Tensor(" in repr(x)
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    x.shard_(NamedSharding(mesh, PartitionSpec()))
    assert Tensor(jnp.ones(2), Environment(), requires_grad=True).requires_grad
