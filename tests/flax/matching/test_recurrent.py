import numpy as np
import pytest

from anyjax.flax.matching import recurrent
from anyjax.flax.matching.layer import Flax, Slot, Tensor, Torch

HIDDEN, INPUTS = 2, 3


def torch_layer(kind, gates):
    rng = np.random.default_rng(0)
    shapes = {"weight_ih": (gates * HIDDEN, INPUTS), "weight_hh": (gates * HIDDEN, HIDDEN)}
    shapes |= {"bias_ih": (gates * HIDDEN,), "bias_hh": (gates * HIDDEN,)}
    values = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    tensors = {k: Tensor(k, (k,), v.shape, lambda v=v: v) for k, v in values.items()}
    return Torch("x", kind, tensors), values


def flax_layer(kind, shapes):
    slots = {k: Slot((*k.split("/"),), s, np.float32, True) for k, s in shapes.items()}
    return Flax((), kind, slots)


def test_gates_and_summed_biases():
    torch, v = torch_layer("lstm", 4)
    shapes = {f"i{g}/kernel": (INPUTS, HIDDEN) for g in "ifgo"}
    shapes |= {f"h{g}/kernel": (HIDDEN, HIDDEN) for g in "ifgo"}
    shapes |= {f"h{g}/bias": (HIDDEN,) for g in "ifgo"}
    flax = flax_layer("lstm", shapes)
    got = {f.slot.name: f.value() for f in recurrent.fills(flax, torch)}
    np.testing.assert_array_equal(got["ig/kernel"], v["weight_ih"][4:6].T)
    np.testing.assert_array_equal(got["hf/bias"], (v["bias_ih"] + v["bias_hh"])[2:4])
    assert recurrent.unplaced_biases(flax, torch) == []


def test_the_reset_gate_scales_a_bias_that_stays_alone():
    torch, v = torch_layer("gru", 3)
    shapes = {f"i{g}/kernel": (INPUTS, HIDDEN) for g in "rzn"}
    shapes |= {f"h{g}/kernel": (HIDDEN, HIDDEN) for g in "rzn"}
    shapes |= {f"i{g}/bias": (HIDDEN,) for g in "rzn"} | {"hn/bias": (HIDDEN,)}
    flax = flax_layer("gru", shapes)
    got = {f.slot.name: f.value() for f in recurrent.fills(flax, torch)}
    np.testing.assert_array_equal(got["iz/bias"], (v["bias_ih"] + v["bias_hh"])[2:4])
    np.testing.assert_array_equal(got["in/bias"], v["bias_ih"][4:])
    np.testing.assert_array_equal(got["hn/bias"], v["bias_hh"][4:])
    assert recurrent.unplaced_biases(flax, torch) == []


@pytest.mark.parametrize("bias", [True, False])
def test_homeless_biases(bias):
    torch, v = torch_layer("gru", 3)
    shapes = {"dense_i/kernel": (INPUTS, 6), "dense_h/kernel": (HIDDEN, 6)}
    flax = flax_layer("gru", shapes | ({"dense_i/bias": (6,)} if bias else {}))
    assert recurrent.unplaced_biases(flax, torch) == (
        ["bias_hh[4:]"] if bias else ["bias_ih", "bias_hh"]
    )
    v["bias_hh"][4 if bias else 0 :] = 0
    v["bias_ih"][:] = 0
    assert recurrent.unplaced_biases(flax, torch) == []
