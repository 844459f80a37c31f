"""model.init: a pure function of its key under every transformation, and what none makes."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import anyjax
from anyjax.calls.initialise import fresh
from anyjax.errors import NoInitialiser, Unsupported, WrongArguments
from tests.tolerance import assert_close

KEY = jax.random.key(3)


def net() -> anyjax.Model:
    """A convolution with statistics of batches, and a head."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    return anyjax.from_torch(
        torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(64, 2))
    )


@pytest.fixture(scope="module")
def model():
    return net()


class Scaled(torch.nn.Module):
    """A parameter of its own, which no initialiser covers."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((2,), 5.0))
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x) * self.scale


def test_the_same_key_gives_the_same_params_and_another_key_others(model):
    params, same, other = model.init(KEY), model.init(KEY), model.init(jax.random.key(4))
    assert {k: (x.shape, x.dtype) for k, x in params.items()} == {
        k: (x.shape, x.dtype) for k, x in model.params.items()
    }
    drawn = [k for k in params if k not in ("1.weight", "1.bias")]  # BatchNorm's are ones, zeros
    assert all(np.array_equal(params[k], same[k]) for k in params)
    assert not any(np.array_equal(params[k], other[k]) for k in drawn)
    assert not any(np.array_equal(params[k], model.params[k]) for k in drawn)
    assert not np.array_equal(params["0.weight"].ravel()[:64], params["4.weight"].ravel()[:64])


def test_the_model_its_module_and_torchs_generator_stay_as_they_are(model):
    before = {k: np.array(v) for k, v in {**model.params, **model.state}.items()}
    weights = {k: x.clone() for k, x in model.source.module.state_dict().items()}
    generator = torch.get_rng_state()
    model.init(KEY)
    assert torch.equal(generator, torch.get_rng_state())
    assert_close({**model.params, **model.state}, before)
    assert all(torch.equal(weights[k], x) for k, x in model.source.module.state_dict().items())


def test_statistics_begin_anew_where_they_are_asked_for(model):
    trained = model.with_state({k: v + 3 for k, v in model.state.items()})
    params, state = trained.init(KEY, mutable=True)
    assert_close(state, model.state)
    assert_close(params, model.init(KEY))


def test_jit_and_a_model_that_is_an_argument(model):
    params = model.init(KEY)
    assert_close(jax.jit(model.init)(KEY), params)
    assert_close(jax.jit(lambda model, key: model.init(key))(model, KEY), params)


def test_an_ensemble_is_vmap_over_keys(model):
    keys = jax.random.split(KEY, 3)
    ensemble = jax.vmap(model.init)(keys)
    for i, key in enumerate(keys):
        assert_close({k: v[i] for k, v in ensemble.items()}, model.init(key))
    out = jax.vmap(model.eval().apply, in_axes=(0, None))(
        ensemble, np.ones((1, 3, 6, 6), np.float32)
    )
    assert out.shape == (3, 1, 2) and len({*out[:, 0, 0].tolist()}) == 3


def test_shapes_without_a_draw(model):
    shapes = jax.eval_shape(model.init, KEY)
    assert shapes["4.weight"].shape == (2, 64)


PLANS = {"0.weight": P("data"), "1.weight": P("data"), "4.weight": P(None, "data")}


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_on_a_mesh_arrays_lie_where_the_models_own_do(model, kind):
    mesh = jax.make_mesh((4,), ("data",), axis_types=(kind,))
    sharded = anyjax.parallel.shard(model, mesh, PLANS)
    params = sharded.init(KEY)
    assert {k: x.sharding for k, x in params.items()} == {
        k: x.sharding for k, x in sharded.params.items()
    }
    assert {x.data.shape for x in params["4.weight"].addressable_shards} == {(2, 16)}
    assert_close(params, model.init(KEY))


def test_no_device_draws_more_than_its_part():
    model = anyjax.from_torch(torch.nn.Linear(512, 1024, bias=False))
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    place = jax.sharding.NamedSharding(mesh, P("data"))
    compiled = jax.jit(model.init, out_shardings={"weight": place}).lower(KEY).compile()
    text = compiled.as_text()
    assert "f32[128,512]" in text and "[1024,512]" not in text
    assert not any(name in text for name in ("all-gather", "all-reduce", "collective"))
    whole, memory = 1024 * 512 * 4, compiled.memory_analysis()
    assert memory.output_size_in_bytes <= whole // 8 + 64 and memory.temp_size_in_bytes < whole


def test_a_rolled_model_draws_the_rows_of_its_stacks():
    pytest.importorskip("transformers")
    model = anyjax.from_pretrained("examples/tiny-llama")
    rolled = anyjax.from_pretrained("examples/tiny-llama", roll=True)
    assert_close(anyjax.transforms.unroll(rolled).params, model.params)
    stacks = rolled.with_params(rolled.init(KEY))
    assert_close(anyjax.transforms.unroll(stacks).params, model.init(KEY))


def test_what_no_initialiser_makes_is_kept_and_told_once():
    model = anyjax.from_torch(Scaled())
    with pytest.warns(NoInitialiser, match="no initialiser of Scaled makes scale:"):
        params = model.init(KEY)
    assert params["scale"].tolist() == [5, 5]
    assert not np.array_equal(params["linear.weight"], model.params["linear.weight"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = jax.jit(model.init)(KEY)
    assert_close(again, params)


def test_a_constructor_makes_what_it_draws_itself():
    class Drawn(Scaled):
        def __init__(self, width=2):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.randn(width))
            torch.nn.init.zeros_(self.linear.weight)

    model = anyjax.from_torch(Drawn())
    generator = torch.get_rng_state()
    params = model.init(KEY, build=Drawn)
    assert torch.equal(generator, torch.get_rng_state())
    assert not np.any(params["linear.weight"])
    assert not np.array_equal(params["scale"], model.params["scale"])
    assert_close(jax.jit(lambda key: model.init(key, build=Drawn))(KEY), params)
    assert len({*jax.vmap(lambda key: model.init(key, build=Drawn))(
        jax.random.split(KEY, 4))["scale"][:, 0].tolist()}) == 4  # fmt: skip
    with pytest.raises(WrongArguments, match="another module than Drawn: scale differ"):
        model.init(KEY, build=lambda: Drawn(3))


def test_programs_without_initialisers_are_refused(tmp_path):
    source = torch.nn.Linear(2, 2).eval()
    anyjax.from_torch(source).save(tmp_path / "linear", np.ones((1, 2), np.float32))
    loaded = anyjax.load(tmp_path / "linear")
    with pytest.raises(Unsupported, match="fresh params of Linear from"):
        loaded.init(KEY)
    with pytest.warns(NoInitialiser, match=r"makes weight, bias|makes bias, weight"):
        assert_close(fresh(loaded, KEY)[0], loaded.params)
    exported = jax.export.export(jax.jit(lambda x: x + jnp.ones(2)))(np.ones(2, np.float32))
    assert anyjax.from_stablehlo(exported).init(KEY) == {}  # nothing to draw


def test_adapters_are_refused():
    pytest.importorskip("optax")
    model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(4, 4)))
    model = anyjax.train.lora(model, rank=2, targets="0")
    with pytest.raises(Unsupported, match="adapters"):
        model.init(KEY)


@pytest.mark.parametrize("rng", [0, "0"])
def test_no_keys(model, rng):
    with pytest.raises(WrongArguments, match="not a key"):
        model.init(rng)
