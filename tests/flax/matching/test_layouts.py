import numpy as np
import pytest

from anyjax.flax.matching.layer import Flax, Slot, Tensor, Torch
from anyjax.flax.matching.layouts import Maps, choices
from tests.tolerance import assert_close


def pair(flax_kind, want, torch_kind, have, bias=None):
    flax = {"weight": Slot(("x", "kernel"), want, np.float32, True)}
    array = np.arange(np.prod(have), dtype=np.float32).reshape(have)
    torch = {"weight": Tensor("x.weight", ("x.weight",), have, lambda: array)}
    if bias:
        flax["bias"] = Slot(("x", "bias"), (bias,), np.float32, True)
        vector = np.arange(bias, dtype=np.float32)
        torch["bias"] = Tensor("x.bias", ("x.bias",), (bias,), lambda: vector)
    return array, Flax(("x",), flax_kind, flax), Torch("x", torch_kind, torch)


FITS = {
    "dense": ("dense", (3, 5), "linear", (5, 3), lambda a: a.T),
    "square": ("dense", (4, 4), "linear", (4, 4), lambda a: a.T),
    "Conv1D": ("dense", (3, 5), "matrix", (3, 5), lambda a: a),
    "heads": ("general", (6, 2, 4), "linear", (8, 6), lambda a: a.T.reshape(6, 2, 4)),
    "heads out": ("general", (2, 4, 6), "linear", (6, 8), lambda a: a.T.reshape(2, 4, 6)),
    "heads first": ("raw", (2, 6, 4), "linear", (8, 6), None),
    "conv": ("conv", (3, 3, 2, 5), "conv", (5, 2, 3, 3), lambda a: a.transpose(2, 3, 1, 0)),
    "one place": ("conv", (1, 1, 2, 5), "linear", (5, 2), lambda a: a.T.reshape(1, 1, 2, 5)),
    "of one place": ("dense", (2, 5), "conv", (5, 2, 1, 1), lambda a: a[:, :, 0, 0].T),
    "embed": ("embed", (7, 3), "embed", (7, 3), lambda a: a),
    "norm": ("norm", (4,), "norm", (4,), lambda a: a),
    "norm of maps": ("norm", (3, 4, 2), "norm", (2, 3, 4), lambda a: a.transpose(1, 2, 0)),
}


@pytest.mark.parametrize("case", FITS)
def test_one_layout(case):
    *shapes, take = FITS[case]
    array, flax, torch = pair(*shapes)
    (choice,) = choices(flax, torch)
    if take is None:  # x @ weight.T in heads
        take = lambda a: a.reshape(2, 4, 6).transpose(0, 2, 1)
    np.testing.assert_array_equal(choice.fills[0].value(), take(array))


@pytest.mark.parametrize(
    "case",
    [
        ("dense", (5, 3), "linear", (5, 3)),
        ("embed", (3, 7), "embed", (7, 3)),
        ("dense", (7, 7), "embed", (7, 7)),
        ("norm", (4,), "batchnorm", (5,)),
        ("conv", (3, 3, 2, 5), "conv", (2, 5, 3, 3)),
    ],
)
def test_no_layout(case):
    _, flax, torch = pair(*case)
    assert choices(flax, torch) == []


def test_roles_must_be_the_same():
    _, flax, torch = pair("dense", (3, 5), "linear", (5, 3), bias=5)
    assert len(choices(flax, torch)) == 1
    torch.tensors.pop("bias")
    assert choices(flax, torch) == []


def test_square_parameters_have_two_layouts():
    _, flax, torch = pair("raw", (4, 4), "linear", (4, 4))
    assert [(c.layout, c.sure) for c in choices(flax, torch)] == [
        ("as it is", False),
        ("transposed", False),
    ]
    _, flax, torch = pair("raw", (4, 4), "raw", (4, 4))
    assert choices(flax, torch)[0].sure


def test_flattened_maps():
    array, flax, torch = pair("dense", (6, 4), "linear", (4, 6), bias=4)
    before = choices(flax, torch, Maps(before=(2,)))
    assert len(before) == 2
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)  # channels, places
    got = x.T.reshape(-1) @ before[1].fills[0].value()
    assert_close(got, array @ x.reshape(-1), reduction=6)
    after = choices(flax, torch, Maps(after=(2,)))[1]
    y = np.arange(6, dtype=np.float32)
    want = (array @ y + np.arange(4)).reshape(2, 2).T.reshape(-1)
    got = y @ after.fills[0].value() + after.fills[1].value()
    assert_close(got, want, reduction=6)
