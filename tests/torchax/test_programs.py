"""Programs of torchax's users: the faults that they patch, and values that cross over."""

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
from torch.nn.utils.rnn import pad_sequence

from anyjax import torchax
from anyjax.errors import Unsupported
from anyjax.torchax import export, interop, mesh_util, train
from anyjax.torchax.flax import FlaxNNModule
from anyjax.torchax.ops import mappings
from anyjax.torchax.ops.ops_registry import Operator
from anyjax.torchax.tensor import Environment, Tensor, View

ENV = torchax.default_env()


def on_jax(*values: float) -> torch.Tensor:
    return interop.torch_view(jnp.array(values))


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.offset = torch.zeros(2)  # neither parameter nor buffer

    def forward(self, x):
        return x * self.weight + self.offset


class compilations:
    """Counts what XLA compiles inside of it."""

    def __enter__(self):
        self.count, self.inside = 0, True
        jax.monitoring.register_event_duration_secs_listener(self.note)
        return self

    def note(self, event: str, *args: object, **kwargs: object) -> None:
        self.count += self.inside and "backend_compile" in event

    def __exit__(self, *exception):
        self.inside = False


def test_boolean_mask_writes_compile_once_for_any_count():
    with ENV:
        x, row = torch.zeros(8, 2, device="jax"), torch.ones(2, device="jax")

        def write(mask: torch.Tensor) -> None:
            x[mask] = 5.0
            x[mask] = row
            x[mask, 0] = 2.0
            x.masked_fill_(~mask[:, None], 7.0)

        masks = [interop.torch_view(jnp.arange(8) < count) for count in (1, 2, 5, 8, 0, 3)]
        write(masks[0])
        with compilations() as programs:
            for mask in masks[1:]:
                write(mask)
    assert programs.count == 0
    assert x.tolist() == [[2, 1]] * 3 + [[7, 7]] * 5


def test_boolean_mask_writes_inside_of_a_program():
    def merge(x, mask, rows):
        with ENV:
            x, mask, rows = interop.torch_view((x, mask, rows))
            x[mask] = rows
            return interop.jax_view(x)

    mask = jnp.array([False, True, False, True])
    out = jax.jit(merge)(jnp.zeros((4, 2)), mask, jnp.arange(4.0).reshape(2, 2))
    assert out.tolist() == [[0, 0], [0, 1], [0, 0], [2, 3]]


def test_slices_that_are_kept_share_the_memory_of_their_base():
    class Cache(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = torch.zeros(4, 2)
            self.row = self.cache[1]
            self.last = None

        def forward(self, x):
            self.cache[1] += x
            self.last = self.cache[1:3]
            return self.row * 1

    model = interop.JittableModule(Cache())
    assert model(on_jax(1.0, 1)).tolist() == [1, 1]
    assert model(on_jax(1.0, 1)).tolist() == [2, 2]
    assert model.row.tolist() == [2, 2]
    assert model.last.tolist() == [[2, 2], [0, 0]]
    model.cache.zero_()
    assert model.row.tolist() == [0, 0]


def test_slices_outlive_their_base_and_its_program():
    @jax.jit
    def program(array):
        with ENV:
            x = interop.torch_view(array)
            piece = x[1:3]
            x.add_(1)
            del x
            return interop.jax_view(piece)

    assert program(jnp.zeros(4)).tolist() == [1, 1]
    piece = on_jax(1.0, 2, 3)[1:]
    assert isinstance(piece, View) and piece.tolist() == [2, 3]


def test_a_jittable_module_takes_the_weights_of_an_outer_functional_call():
    model = torch.nn.Sequential(interop.JittableModule(Scaled()))
    assert [*model.state_dict()] == [*dict(model.named_parameters())] == ["0._model.weight"]
    x = on_jax(1.0, 2)

    @jax.jit
    def call(weight):
        weights = {"0._model.weight": interop.torch_view(weight)}
        return interop.jax_view(torch.func.functional_call(model, weights, (x,)))

    assert call(jnp.full(2, 3.0)).tolist() == [3, 6]
    assert call(jnp.full(2, 5.0)).tolist() == [5, 10]  # none is a constant of the program
    assert jax.grad(lambda w: call(w).sum())(jnp.ones(2)).tolist() == [1, 2]
    assert model(x).tolist() == [1, 2]  # no tracer stays behind


def test_later_writes_to_attributes_and_weights_are_seen():
    module = Scaled()
    model = interop.JittableModule(module)
    assert isinstance(model, Scaled) and module.offset.device.type == "jax"
    x = on_jax(1.0, 1)
    assert model(x).tolist() == [1, 1]
    module.offset.copy_(torch.tensor([1.0, 2]))
    assert model(x).tolist() == [2, 3]
    module.offset = on_jax(5.0, 5)
    assert model(x).tolist() == [6, 6]
    model.params["weight"] = on_jax(2.0, 3)
    assert model(x).tolist() == [7, 8]
    assert module.weight.tolist() == [2, 3]


def test_per_layer_embeddings():
    class Embeds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(4, 2)
            self.per_layer = torch.zeros(8, 2)

        def embed(self, ids):
            hidden = self.embedding(ids)
            self.per_layer[: len(ids)].copy_(2 * hidden)
            return hidden

        def forward(self, hidden):
            return hidden + self.per_layer[: len(hidden)]

    model = interop.JittableModule(Embeds())
    model.make_jitted("embed")
    for ids in ([1, 2, 3], [3, 0]):
        hidden = model.embed(interop.torch_view(jnp.array(ids)))
        np.testing.assert_allclose(model(hidden).jax(), 3 * hidden.jax(), rtol=1e-6)


def test_the_accelerator_answers():
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator().type == "jax"
    assert accelerator.device_count() == torch.jax.device_count() == 1
    assert accelerator.current_device_index() == torch.jax.current_device() == 0
    free, size = accelerator.get_memory_info()
    assert 0 <= free <= size
    assert 0 <= accelerator.memory_allocated() <= accelerator.max_memory_allocated()
    assert 0 <= accelerator.memory_reserved() <= accelerator.max_memory_reserved()
    assert torch.jax.mem_get_info() == (free, size)
    accelerator.set_device_index(0)
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats()
    accelerator.synchronize()
    state = torch.jax.get_rng_state()
    torch.jax.set_rng_state(state)


def test_flatten_of_empty_tensors_and_pad_sequence():
    with ENV:
        for shape in ((0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 3, 4)):
            expected = torch.zeros(shape).flatten(end_dim=-2).shape
            assert torch.zeros(shape, device="jax").flatten(end_dim=-2).shape == expected
        rows = [torch.ones(2, device="jax"), torch.ones(3, device="jax")]
        assert pad_sequence(rows).tolist() == [[1, 1], [1, 1], [0, 1]]
        padded = pad_sequence(rows, batch_first=True, padding_value=-1.0, padding_side="left")
        assert padded.tolist() == [[-1, 1, 1], [1, 1, 1]]


def test_composites_outside_of_the_context():
    x = interop.torch_view(jnp.arange(6.0).reshape(2, 3))
    usual = torch.arange(6.0).reshape(2, 3)
    index = interop.torch_view(jnp.array([0, 2, 1]))
    assert F.one_hot(index).tolist() == F.one_hot(torch.tensor([0, 2, 1])).tolist()
    assert torch.quantile(x, 0.25).item() == torch.quantile(usual, 0.25).item()
    pieces = torch.tensor_split(x, interop.torch_view(jnp.array([1, 2])), 1)
    assert [p.tolist() for p in pieces] == [[[0], [3]], [[1], [4]], [[2], [5]]]
    scores = torch.zeros(5, 2, 4).log_softmax(-1)
    labels = torch.ones(2, 2, dtype=torch.long)
    expected = F.ctc_loss(scores, labels, (5, 5), (2, 2))
    moved = ENV.to_xla((scores, labels))
    np.testing.assert_allclose(F.ctc_loss(*moved, (5, 5), (2, 2)).item(), expected, rtol=1e-5)
    assert F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5).shape == (
        1,
        2,
        3,
    )
    assert torch.linalg.matrix_rank(x).item() == 2
    out = interop.torch_view(jnp.zeros((4, 9)))
    torch.kron(x, x, out=out)
    assert out.tolist() == torch.kron(usual, usual).tolist()


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
