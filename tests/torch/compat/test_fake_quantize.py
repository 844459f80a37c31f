"""Modules of ``torch.ao.quantization`` that observe and round: outputs, buffers and gradients."""

import copy

import jax
import numpy as np
import pytest
import torch
from torch.ao import quantization
from torch.ao.quantization import fake_quantize as fakes
from torch.ao.quantization import observer

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

pytestmark = [
    pytest.mark.sample(every=10),
    pytest.mark.filterwarnings("ignore:.*quantiz.*", "ignore:Please use quant_min"),
]

RNG = np.random.default_rng(0)
BATCHES = [RNG.standard_normal((2, 3, 4, 4)).astype(np.float32) * scale for scale in (1, 3, 0.1)]
MOVING, ROWS = observer.MovingAverageMinMaxObserver, observer.MovingAveragePerChannelMinMaxObserver
SIGNED = {"quant_min": -128, "quant_max": 127, "dtype": torch.qint8}
UNSIGNED = {"quant_min": 0, "quant_max": 255, "dtype": torch.quint8}
AXES = {fakes.FakeQuantize: 1, fakes.FusedMovingAvgObsFakeQuantize: 0}  # of torch
KINDS = {
    "affine": lambda cls: cls(MOVING, **UNSIGNED, averaging_constant=0.3),
    "symmetric": lambda cls: cls(MOVING, **SIGNED, qscheme=torch.per_tensor_symmetric),
    "channels": lambda cls: cls(
        ROWS, **SIGNED, qscheme=torch.per_channel_symmetric, ch_axis=AXES[cls]
    ),
    "affine channels": lambda cls: cls(ROWS, **UNSIGNED, qscheme=torch.per_channel_affine),
    "fixed": lambda cls: fakes.default_fixed_qparams_range_neg1to1_fake_quant(),
    "limits": lambda cls: fakes.FakeQuantize(observer.MinMaxObserver, **UNSIGNED),
}


def prepared(module, batch=None):
    """The module, and, where per-channel buffers have no elements yet, what makes them."""
    if batch is not None:
        module(torch.from_numpy(batch))
    return module


def assert_same_training(module, batches=BATCHES, reduction=1):
    """Outputs, gradients and the buffers, batch after batch, under jit."""
    model = anyjax.from_torch(copy.deepcopy(module))

    @jax.jit
    def step(params, state, x):
        def loss(params, x):
            out, new = model.apply(params, x, state=state, mutable=True)
            return (out**2).sum(), (out, new)

        return jax.grad(loss, (0, 1), has_aux=True)(params, x)

    state = model.state
    for batch in batches:
        x = torch.tensor(batch, requires_grad=True)
        module.zero_grad()
        want = module(x)
        (want**2).sum().backward()
        (by_params, by_x), (out, state) = step(model.params, state, batch)
        assert_close(out, want, reduction=reduction)
        assert_close(by_x, x.grad, reduction=8 * reduction)
        for name, parameter in module.named_parameters():
            assert_close(by_params[name], parameter.grad, reduction=32 * reduction)
        for name, buffer in module.named_buffers():
            assert state[name].dtype == model.state[name].dtype, name
            assert_close(state[name], buffer, reduction=4)


@pytest.mark.parametrize("observing", [True, False])
@pytest.mark.parametrize("rounding", [True, False])
@pytest.mark.parametrize("cls", [fakes.FakeQuantize, fakes.FusedMovingAvgObsFakeQuantize])
@pytest.mark.parametrize("kind", KINDS)
def test_modules(kind, cls, rounding, observing):
    first = BATCHES[0] if "channels" in kind else None
    module = prepared(KINDS[kind](cls), first)
    module.enable_fake_quant(rounding)
    module.enable_observer(observing)
    assert_same_training(module)


CONFIGS = {
    "fused": quantization.get_default_qat_qconfig("fbgemm"),
    "fused, per tensor": quantization.get_default_qat_qconfig("qnnpack"),
    "modules": quantization.get_default_qat_qconfig("fbgemm", version=0),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("config", CONFIGS)
def test_prepare_qat(config, training):
    """Layers whose weights are rounded, too; frozen in evaluation, as torch's tutorials do it."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Conv2d(3, 2, 3)
    module = torch.nn.Sequential(quantization.QuantStub(), *layers, quantization.DeQuantStub())
    module.train().qconfig = CONFIGS[config]
    module = prepared(quantization.prepare_qat(module), BATCHES[0])
    if not training:
        module.eval().apply(quantization.disable_observer)
    assert_same_training(module, reduction=27)


@pytest.mark.parametrize("cls", [fakes.FakeQuantize, fakes.FusedMovingAvgObsFakeQuantize])
def test_limits_per_channel_get_their_number_in_torch(cls):
    model = anyjax.from_torch(KINDS["channels"](cls))
    with pytest.raises(Unsupported, match="call the module once with torch"):
        model.apply({}, BATCHES[0], mutable=True)


@pytest.mark.parametrize("channels", [False, True])
def test_observers_alone(channels):
    """They return what they are given, and what they saw."""
    kinds = (
        (observer.PerChannelMinMaxObserver, ROWS) if channels else (observer.MinMaxObserver, MOVING)
    )
    for cls in kinds:
        module = prepared(cls(), BATCHES[2] if channels else None)
        assert_same_training(module)
        if channels:
            with pytest.raises(Unsupported, match="has seen no values"):
                anyjax.from_torch(cls()).apply({}, BATCHES[0], mutable=True)


@pytest.mark.filterwarnings("ignore::anyjax.errors.StateDropped")
def test_limits_out_of_order():
    """torch raises; so does the model."""
    module = KINDS["affine"](fakes.FakeQuantize)
    prepared(module, BATCHES[0])
    module.activation_post_process.min_val.fill_(1e6)
    with pytest.raises(AssertionError, match="should be less than max"):
        copy.deepcopy(module)(torch.from_numpy(BATCHES[0]))
    with pytest.raises(AssertionError, match="should be less than max"):
        anyjax.from_torch(module)(BATCHES[0])


RANGES = [(-1, 3), (-3, 1), (2, 5), (-5, -2), (0, 0), (0, 1e-4), (-1e-4, 0), (-1e-9, 2e-9), (-3, 0)]

BETWEEN = [0, 0.1234, 0.4567, 0.777, 1]  # no level ends in .5


@pytest.mark.parametrize("limits", [(0, 255), (-128, 127), (0, 127), (-8, 7)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_steps_of_the_fused_operator(limits, symmetric):
    """Ranges of one sign and of two, tiny and empty."""
    on = torch.ones(1, dtype=torch.long)
    none = torch.tensor(np.inf), torch.tensor(-np.inf), torch.ones(1), torch.zeros(1).int()

    def run(x):
        low, high, scale, zero = (v.clone() for v in none)
        how = 0.01, *limits, -1, False, symmetric
        out = torch.fused_moving_avg_obs_fake_quant(x, on, on, low, high, scale, zero, *how)
        return out, low, high, scale, zero

    model = anyjax.from_torch(run)
    for ends in RANGES:
        x = np.interp(BETWEEN, (0, 1), ends).astype(np.float32)
        assert_close(model(x), run(torch.from_numpy(x)), reduction=4)
