"""Adapters of quantized matrices: small, trained, resumed, written for PEFT, merged."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import WrongValue
from anyjax.train import TrainState, fit, load_adapter, lora, make_step, merge, save_adapter
from anyjax.transforms import quantize

pytestmark = pytest.mark.sample(every=2)

X = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
Y = np.tanh(X[:, :8])
TX = optax.adam(0.01)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))


def error(model):
    return float(((model(X) - Y) ** 2).mean())


def trained(model, steps=40, **options):
    step = make_step(lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean(), TX)
    state = TrainState.create(model, TX)
    return fit(state, step, [(X, Y)] * steps, progress=False, **options).model


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("scheme, bits", [("int8", 8), ("int4", 4), ("nf4", 4)])
def test_trains_the_adapters_of_rounded_matrices(scheme, bits, dora):
    model = anyjax.from_torch(network())
    small = lora(model, 4, "weight", dora=dora, quantize=scheme)
    np.testing.assert_allclose(small(X), quantize(model, scheme)(X), atol=1e-5)
    held = sum(x.nbytes for k, x in small.state.items() if "weight" in k)
    whole = sum(x.nbytes for k, x in model.params.items() if "weight" in k)
    assert held < whole * (bits / 32 + 0.04)  # the rest are scales
    assert not {"0.weight", "2.weight"} & {*small.params, *small.state}
    after = trained(small)
    assert error(after) < error(small) / 4
    for name, array in small.state.items():
        assert jnp.array_equal(after.state[name], array), name
    plain = merge(after)
    assert plain.params.keys() == model.params.keys() and plain.source == model.source
    assert {x.dtype for x in plain.params.values()} == {jnp.dtype("float32")}
    np.testing.assert_allclose(plain(X), after(X), atol=1e-5)
    np.testing.assert_allclose(after.to_torch()(torch.from_numpy(X)).detach(), after(X), atol=1e-5)


def test_goes_on_from_a_checkpoint(tmp_path):
    small = lora(anyjax.from_torch(network()), 4, "weight", quantize="int4")
    want = trained(small, 6)
    trained(small, 3, folder=tmp_path)
    again = trained(small, 6, folder=tmp_path)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, again.params, want.params))


def test_a_quantized_model_of_which_a_part_is_adapted(tmp_path):
    """All matrices are small, as in QLoRA; the files are PEFT's."""
    small = quantize(anyjax.from_torch(network()), "nf4")
    some = lora(small, 4, r"^0\.weight", train=r"2\.bias")
    assert sorted(some.params) == ["0.lora_A", "0.lora_B", "2.bias"]
    assert {"0.weight.nf4", "2.weight.nf4"} < some.state.keys()
    np.testing.assert_allclose(some(X), small(X), atol=1e-5)
    after = trained(lora(small, 4, r"^0\.weight"))
    save_adapter(after, tmp_path)
    again = load_adapter(small, tmp_path)
    assert "0.weight.nf4" in again.state
    np.testing.assert_allclose(again(X), after(X), atol=1e-5)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"quantize": "int5"}, "int8, fp8, int4, nf4"),
        ({"quantize": "int4", "block": 48}, "blocks of"),
    ],
)
def test_bad_input(options, says):
    with pytest.raises(WrongValue, match=says):
        lora(anyjax.from_torch(network()), 4, "weight", **options)
