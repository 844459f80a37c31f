"""Weights of JAX models in torch modules: every kind of JAX model, every layout, every refusal."""

import copy
import itertools
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from anyjax.errors import ForwardFailed, WrongArguments, WrongWeights
from anyjax.flax import load_into, to_torch
from tests.flax.test_load_into_sequences import Encoder
from tests.flax.torch_side import TorchTied, lively, normal, torch_mlp
from tests.tolerance import assert_close


def assert_equal_outputs(ours, theirs, x):
    with torch.no_grad():
        want = theirs.eval()(torch.from_numpy(np.array(x)))
    assert_close(np.asarray(ours), want.numpy(), reduction=256)


class Mlp(nnx.Module):
    def __init__(self, rngs, sizes=(3, 8, 8, 2)):
        layers = [nnx.Linear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)]
        self.layers = nnx.List(layers)

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)


def test_an_example_may_be_one_array():
    ours, theirs, x = Mlp(nnx.Rngs(0)), torch_mlp(3, 8, 8, 2), jnp.asarray(normal(4, 3))
    again, report = to_torch(ours, theirs, example=x)
    assert again is theirs
    assert_equal_outputs(ours(x), theirs, x)
    assert [m.torch for m in report][:2] == ["0.weight", "0.bias"]
    assert report.checked.startswith("the outputs differ by")


def test_packed_attention_and_norms_that_only_running_tells_apart():
    ours, x = Encoder(nnx.Rngs(1)), normal(2, 5, 8)
    ours.after_mlp.scale[...] = jnp.asarray(normal(8))
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    _, report = to_torch(ours, theirs, example=x)
    assert_equal_outputs(ours(x), theirs, x)
    assert report["after_mlp/scale"].torch == "norm2.weight"
    assert report["after_mlp/scale"].how == "agreement"
    np.testing.assert_array_equal(theirs.norm2.weight.detach(), ours.after_mlp.scale[...])


class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(4, (3, 3))(x)))
        x = nn.ConvTranspose(2, (3, 3), transpose_kernel=True)(x)
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


def torch_convolutions():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(4, 2, 3, padding=1),
        torch.nn.Flatten(),
        torch.nn.Linear(2 * 6 * 6, 5),
    )


def test_linen_with_statistics_and_a_flattened_map():
    ours, x = Convolutions(), normal(2, 6, 6, 3)
    variables = ours.init(jax.random.key(0), x)
    noise = lambda v: v + jnp.asarray(np.abs(normal(*v.shape)))
    variables = jax.tree.map(noise, variables)
    theirs = torch_convolutions()
    _, report = to_torch(ours, theirs, variables=variables, example=x)
    assert_equal_outputs(ours.apply(variables, x), theirs, x.transpose(0, 3, 1, 2))
    assert "channels last" in report["Dense_0/kernel"].layout
    mean = variables["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_array_equal(theirs[1].running_mean, mean)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_cells_with_fewer_biases_than_torch(kind):
    cell = {"LSTM": nnx.OptimizedLSTMCell, "GRU": nnx.GRUCell}[kind](3, 5, rngs=nnx.Rngs(0))
    ours, x = nnx.RNN(cell), normal(2, 4, 3)
    for path, variable in nnx.to_flat_state(nnx.state(ours, nnx.Param)):
        if path[-1] == "bias":
            variable[...] = jnp.asarray(normal(*variable.shape))
    theirs = getattr(torch.nn, kind)(3, 5, batch_first=True)
    to_torch(ours, theirs, example=x)
    with torch.no_grad():
        want = theirs(torch.from_numpy(x))[0].numpy()
    assert_close(np.asarray(ours(x)), want, reduction=64)


def test_a_plain_pytree_is_run_by_apply():
    def apply(params, x):
        return jax.nn.relu(x @ params["first"]["w"] + params["first"]["b"]) @ params["head"]["w"]

    layer = {"w": normal(4, 4), "b": normal(4)}
    params = {"first": layer, "head": {"w": normal(4, 4)}}
    theirs = lively(
        torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4, bias=False)
        )
    )
    before = copy.deepcopy(theirs.state_dict())
    with pytest.raises(WrongWeights, match="more than one way"):  # 4 x 4 either way
        to_torch(params, theirs)
    assert all(torch.equal(x, before[k]) for k, x in theirs.state_dict().items())
    _, report = to_torch(params, theirs, example=normal(3, 4), apply=apply)
    x = normal(3, 4)
    assert_equal_outputs(apply(params, x), theirs, x)
    assert report["first/w"].layout == "transposed"


def test_square_matrices_follow_the_others_of_their_name():
    theirs = torch_mlp(3, 8, 8, 2)
    shapes = ((3, 8), (8, 8), (8, 2))
    params = {"layers": [{"w": normal(*shape), "b": normal(shape[1])} for shape in shapes]}
    _, report = to_torch(params, theirs)
    assert report["layers/1/w"].how == "convention"
    for i, layer in enumerate(params["layers"]):
        np.testing.assert_array_equal(theirs[2 * i].weight.detach().T, layer["w"])
    params["layers"][2]["w"] = params["layers"][2]["w"].T  # now they do not agree
    with pytest.raises(WrongWeights, match="more than one way"):
        to_torch(params, theirs)


def test_fused_projections_are_split():
    params = {
        "qkv": {"kernel": normal(8, 24), "bias": normal(24)},
        "out": {"kernel": normal(8, 8), "bias": normal(8)},
    }
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    theirs = torch.nn.ModuleDict({name: torch.nn.Linear(8, 8) for name in names})
    to_torch(params, theirs)
    for i, name in enumerate(names[:3]):
        part = slice(8 * i, 8 * i + 8)
        np.testing.assert_array_equal(
            theirs[name].weight.detach().T, params["qkv"]["kernel"][:, part]
        )
        np.testing.assert_array_equal(theirs[name].bias.detach(), params["qkv"]["bias"][part])


def test_a_state_dict_keeps_its_layouts():
    theirs = torch_mlp(4, 4, 4)
    weights = {k: jnp.asarray(normal(*v.shape)) for k, v in theirs.state_dict().items()}
    to_torch(weights, theirs)
    for name, value in theirs.state_dict().items():
        np.testing.assert_array_equal(value, weights[name])


def test_tied_weights():
    class Tied(nnx.Module):
        def __init__(self, rngs, tied=True):
            self.wte = nnx.Embed(11, 8, rngs=rngs)
            self.ln_f = nnx.LayerNorm(8, epsilon=1e-5, rngs=rngs)
            self.lm_head = None if tied else nnx.Linear(8, 11, use_bias=False, rngs=rngs)

    tied = Tied(nnx.Rngs(0))
    theirs = TorchTied()
    to_torch(tied, theirs)
    assert theirs.lm_head.weight is theirs.wte.weight
    np.testing.assert_array_equal(theirs.wte.weight.detach(), tied.wte.embedding[...])
    with pytest.raises(WrongWeights, match="different values for"):
        to_torch(Tied(nnx.Rngs(0), tied=False), theirs)


def test_bfloat16_is_reported_and_what_a_dtype_cannot_hold_is_refused():
    ours, theirs = Mlp(nnx.Rngs(0)), torch_mlp(3, 8, 8, 2)
    _, report = to_torch(ours, copy.deepcopy(theirs).bfloat16())
    assert report["layers/0/kernel"].cast == "float32 -> bfloat16"
    ours.layers[0].kernel[...] = ours.layers[0].kernel[...] * 1e6
    with pytest.raises(WrongWeights, match="does not fit float16"):
        to_torch(ours, theirs.half())


def test_models_that_differ_are_named_and_nothing_is_changed():
    class Gelu(Mlp):
        def __call__(self, x):
            return self.layers[2](nnx.gelu(self.layers[1](nnx.relu(self.layers[0](x)))))

    ours, theirs = Gelu(nnx.Rngs(0)), torch_mlp(3, 8, 8, 2)
    before = copy.deepcopy(theirs.state_dict())
    with pytest.raises(WrongWeights, match=r"differ by") as error:
        to_torch(ours, theirs, example=normal(4, 3))
    assert "layers/2" in str(error.value)
    assert all(torch.equal(x, before[k]) for k, x in theirs.state_dict().items())


def test_parametrized_weights_are_set_by_their_inverse():
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    ours = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    to_torch(ours, theirs, example=normal(4, 3))
    assert_close(theirs.weight.detach().numpy().T, np.asarray(ours.kernel[...]), reduction=3)


def test_state_of_an_nnx_module_from_elsewhere():
    ours, other, theirs = Mlp(nnx.Rngs(0)), Mlp(nnx.Rngs(7)), torch_mlp(3, 8, 8, 2)
    x = normal(4, 3)
    to_torch(ours, theirs, variables=nnx.state(other), example=x)
    assert_equal_outputs(other(x), theirs, x)
    with pytest.raises(WrongArguments, match="variables lack layers/0/bias"):
        to_torch(ours, theirs, variables={"layers": {"0": {"kernel": normal(3, 8)}}})


@pytest.mark.parametrize(
    "jax_model, given, match",
    [
        (nnx.eval_shape(lambda: Mlp(nnx.Rngs(0))), {}, "has no value"),
        ({"text": "words"}, {}, "more than arrays"),
        ({}, {}, "without weights"),
        (Mlp(nnx.Rngs(0)), {"match": {"layers/0/kernel": normal(3, 8)}}, "is an array"),
        (Mlp(nnx.Rngs(0)), {"example": {"x": normal(3, 8)}}, "example is a dict"),
    ],
)
def test_wrong_arguments(jax_model, given, match):
    with pytest.raises(WrongArguments, match=match):
        to_torch(jax_model, torch_mlp(3, 8, 8, 2), **given)


def test_wrong_torch_modules():
    ours = Mlp(nnx.Rngs(0))
    with torch.device("meta"):
        abstract = torch.nn.Linear(3, 2)
    for module in (ours, abstract):
        with pytest.raises(WrongArguments):
            to_torch(ours, module)
    with pytest.raises(ForwardFailed, match="torch_example"):
        to_torch(ours, torch_mlp(3, 8, 8, 2), example=normal(4, 5))


def test_missing_and_further_layers_are_listed():
    ours = Mlp(nnx.Rngs(0))
    with pytest.raises(WrongWeights, match="not filled") as error:
        to_torch(ours, torch_mlp(3, 8, 2))
    assert "(8, 8)" in str(error.value)
    with pytest.raises(WrongWeights, match="not used"):
        to_torch(Mlp(nnx.Rngs(0), (3, 8, 2)), torch_mlp(3, 8, 8, 2))


def test_the_report_goes_both_ways():
    ours, theirs, x = Mlp(nnx.Rngs(3)), torch_mlp(3, 8, 8, 2), normal(4, 3)
    _, report = to_torch(ours, theirs, example=x)
    again, forward = load_into(Mlp(nnx.Rngs(4)), theirs, example=x)
    assert [m.torch for m in report] == [m.torch for m in forward]
    same = jax.tree.map(lambda a, b: bool((a == b).all()), nnx.state(ours), nnx.state(again))
    assert all(jax.tree.leaves(same)), json.dumps(nnx.to_pure_dict(same))


class CalledParams(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x * self.param("params", nn.initializers.ones, (2,))


def test_a_parameter_called_params():
    x = jnp.ones((3, 2))
    variables = CalledParams().init(jax.random.key(0), x)
    theirs = torch.nn.Module()
    theirs.params = torch.nn.Parameter(torch.zeros(2))
    for given in (variables, variables["params"]):
        to_torch(CalledParams(), theirs, variables=given)
        assert theirs.params.tolist() == [1, 1]
        theirs.params.data.zero_()
    with pytest.raises(WrongArguments, match="called params"):
        to_torch(CalledParams(), theirs, variables=variables, example=x)
