"""Recurrent networks with all that they may be given."""

import itertools

import numpy as np
import pytest
from jax.test_util import check_grads

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=12)

RNG = np.random.default_rng(0)
TIME, BATCH, WIDTH, HIDDEN = 5, 4, 3, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def normal(*shape):
    return (0.7 * RNG.standard_normal(shape)).astype(np.float32)


def inputs_of(op, ways=1, bias=True, lengths=False, states=False, peepholes=False):
    size, state = GATES[op] * HIDDEN, (ways, BATCH, HIDDEN)
    return {
        "X": normal(TIME, BATCH, WIDTH),
        "W": normal(ways, size, WIDTH),
        "R": normal(ways, size, HIDDEN),
        "B": normal(ways, 2 * size) if bias else None,
        "lengths": np.array([5, 2, 1, 4], np.int32) if lengths else None,
        "h": normal(*state) if states else None,
        **({"c": normal(*state) if states else None} if op == "LSTM" else {}),
        **({"P": normal(ways, 3 * HIDDEN)} if peepholes else {}),
    }


@pytest.mark.parametrize(
    "op,direction,lengths,states,clip",
    [
        *itertools.product(
            GATES, ["forward", "reverse", "bidirectional"], [0, 1], [0, 1], [None, 0.3]
        )
    ],
)
def test_networks(op, direction, lengths, states, clip):
    ways = 2 if direction == "bidirectional" else 1
    inputs = inputs_of(op, ways, states or lengths, lengths, states, op == "LSTM" and states)
    how = {"hidden_size": HIDDEN, "direction": direction} | ({} if clip is None else {"clip": clip})
    outputs = 3 if op == "LSTM" else 2
    if op == "GRU":
        assert_agrees(op, inputs, outputs, 64, linear_before_reset=1, **how)
    assert_agrees(op, inputs, outputs, 64, **how)


ACTIVATIONS = ["Relu", "HardSigmoid", "Affine", "LeakyRelu", "Elu", "Softsign", "Softplus"]


@pytest.mark.parametrize("name", [*ACTIVATIONS, "ScaledTanh", "ThresholdedRelu", "Sigmoid"])
def test_activations(name):
    how = {"hidden_size": HIDDEN, "activations": ["Tanh", name]}
    how |= {"activation_alpha": [0.7], "activation_beta": [0.4]}
    assert_agrees("RNN", inputs_of("RNN", 2), 2, 64, direction="bidirectional", **how)


def test_coupled_gates():
    how = {"hidden_size": HIDDEN, "input_forget": 1}
    assert_agrees("LSTM", inputs_of("LSTM"), 3, 64, **how)


def test_an_unknown_activation_is_refused():
    inputs = inputs_of("RNN")
    model = anyjax.from_onnx(node("RNN", inputs, 2, hidden_size=HIDDEN, activations=["Tan"]))
    with pytest.raises(Unsupported, match="the activation 'Tan'"):
        model(**{name: x for name, x in inputs.items() if x is not None})


@pytest.mark.parametrize("op", GATES)
def test_the_gradient(op):
    inputs = inputs_of(op, lengths=True)
    model = anyjax.from_onnx(node(op, inputs, 2, hidden_size=HIDDEN))
    lengths = inputs["lengths"]

    def apply(x, w, r, b):
        return model.apply(model.params, x, w, r, b, lengths)["out1"]

    floats = [inputs[name] for name in "XWRB"]
    check_grads(apply, floats, 1, ["rev"], atol=2e-2, rtol=2e-2, eps=1e-3)
