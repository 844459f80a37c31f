"""Convolutions, flattened maps, residual blocks."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from anyjax.errors import WrongWeights
from anyjax.flax import load_into
from tests.flax.torch_side import assert_same_outputs, empty, lively, normal, run
from tests.tolerance import assert_close


class TorchCnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.BatchNorm2d(6)
        self.conv2 = torch.nn.Conv2d(6, 4, 3, stride=2, padding=1, bias=False)
        self.fc = torch.nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(torch.relu(self.conv2(x)).flatten(1))


class Cnn(nnx.Module):
    def __init__(self, rngs, channels_first=False):
        pad = ((1, 1), (1, 1))
        self.conv1 = nnx.Conv(3, 6, (3, 3), padding=pad, rngs=rngs)
        self.bn1 = nnx.BatchNorm(6, rngs=rngs)
        self.conv2 = nnx.Conv(6, 4, (3, 3), 2, padding=pad, use_bias=False, rngs=rngs)
        self.fc = nnx.Linear(64, 5, rngs=rngs)
        self.channels_first = channels_first

    def __call__(self, x):
        x = nnx.relu(self.bn1(self.conv1(x)))
        x = nnx.relu(self.conv2(x))
        x = jnp.moveaxis(x, -1, 1) if self.channels_first else x
        return self.fc(x.reshape(x.shape[0], -1))


@pytest.mark.parametrize("channels_first", [False, True])
def test_rows_after_a_flattened_map_are_in_the_order_of_the_outputs(channels_first):
    theirs, ours, x = lively(TorchCnn()), empty(Cnn, channels_first), normal(2, 8, 8, 3)
    _, report = load_into(ours, theirs, example=(x,))
    ours.eval()
    assert_same_outputs(run(ours, x), theirs, np.moveaxis(x, -1, 1))
    rows = "transposed" if channels_first else "transposed, rows of 4 channels last"
    assert (report["fc/kernel"].layout, report["fc/kernel"].how) == (rows, "agreement")
    assert report["conv1/kernel"].layout == "spatial axes first"
    assert report["bn1/mean"].torch == "bn1.running_mean"
    assert report.left_out == (("bn1.num_batches_tracked", "counts training steps"),)


def test_a_flattened_map_without_an_example_is_ambiguous():
    before = nnx.state(ours := Cnn(nnx.Rngs(0)))
    with pytest.raises(WrongWeights, match=r"(?s)fc: .*transposed.* \| .*4 channels last.*match="):
        load_into(ours, lively(TorchCnn()).state_dict())
    jax.tree.map(np.testing.assert_array_equal, before, nnx.state(ours))
    match = {"fc": ("fc", "transposed, rows of 4 channels last")}
    theirs, x = lively(TorchCnn()), normal(2, 8, 8, 3)
    _, report = load_into(ours, theirs.state_dict(), match=match)
    ours.eval()
    assert_same_outputs(run(ours, x), theirs, np.moveaxis(x, -1, 1))
    assert report["fc/kernel"].how == "given"


class LinenCnn(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(6, (3, 3), padding=1)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        x = nn.relu(nn.Conv(4, (3, 3), 2, padding=1, use_bias=False)(x))
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


def test_linen_cnn():
    theirs, module, x = lively(TorchCnn()), LinenCnn(), normal(2, 8, 8, 3)
    variables, report = load_into(module, theirs, example=(x,), kwargs={"train": False})
    assert_same_outputs(module.apply(variables, x, train=False), theirs, np.moveaxis(x, -1, 1))
    assert report["Dense_0/kernel"].how == "agreement"


CONVOLUTIONS = {
    "1d": (torch.nn.Conv1d(4, 6, 3, padding=1), dict(kernel_size=(3,), padding=1)),
    "3d": (torch.nn.Conv3d(4, 6, 3, padding=1), dict(kernel_size=(3,) * 3, padding=1)),
    "grouped": (
        torch.nn.Conv2d(4, 6, 3, padding=1, groups=2),
        dict(kernel_size=(3, 3), padding=1, feature_group_count=2),
    ),
    "depthwise": (
        torch.nn.Conv2d(4, 8, (3, 5), groups=4),
        dict(kernel_size=(3, 5), padding="VALID", feature_group_count=4),
    ),
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions(kind):
    theirs, options = CONVOLUTIONS[kind]
    theirs = lively(theirs)
    ours = nnx.Conv(theirs.in_channels, theirs.out_channels, rngs=nnx.Rngs(0), **options)
    x = normal(2, *[8] * len(theirs.kernel_size), 4)
    load_into(ours, theirs, example=(x,))
    with torch.no_grad():
        want = theirs(torch.from_numpy(np.moveaxis(x, -1, 1))).numpy()
    assert_close(np.asarray(run(ours, x)), np.moveaxis(want, 1, -1), reduction=256)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("outputs", [4, 6])
def test_transposed_convolution(swapped, outputs):
    theirs = lively(torch.nn.ConvTranspose2d(4, outputs, 3, stride=2))
    options = dict(strides=2, padding="VALID", transpose_kernel=swapped)
    ours = nnx.ConvTranspose(4, outputs, (3, 3), rngs=nnx.Rngs(0), **options)
    x = normal(2, 5, 5, 4)
    load_into(ours, theirs, example=(x,))
    linen = nn.ConvTranspose(outputs, (3, 3), (2, 2), "VALID", transpose_kernel=swapped)
    variables, _ = load_into(linen, theirs, example=(x,))
    np.testing.assert_array_equal(variables["params"]["kernel"], ours.kernel[...])


class TorchBlock(torch.nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(a, b, 3, 2, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(b)
        self.conv2 = torch.nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(b)
        self.downsample = torch.nn.Sequential(
            torch.nn.Conv2d(a, b, 1, 2, bias=False), torch.nn.BatchNorm2d(b)
        )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.downsample(x))


class TorchResNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = torch.nn.Sequential(TorchBlock(4, 4), TorchBlock(4, 4))
        self.layer2 = torch.nn.Sequential(TorchBlock(4, 8))
        self.fc = torch.nn.Linear(8, 3)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(x.mean((2, 3)))


class Block(nnx.Module):
    def __init__(self, a, b, rngs):
        conv = lambda a, k, s, p: nnx.Conv(a, b, (k, k), s, padding=p, use_bias=False, rngs=rngs)
        self.conv_a, self.conv_b = conv(a, 3, 2, 1), conv(b, 3, 1, 1)
        self.norm_a, self.norm_b = nnx.BatchNorm(b, rngs=rngs), nnx.BatchNorm(b, rngs=rngs)
        self.shortcut_conv = conv(a, 1, 2, 0)
        self.shortcut_norm = nnx.BatchNorm(b, rngs=rngs)

    def __call__(self, x):
        y = self.norm_b(self.conv_b(nnx.relu(self.norm_a(self.conv_a(x)))))
        return nnx.relu(y + self.shortcut_norm(self.shortcut_conv(x)))


class ResNet(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(3, 4, (3, 3), padding=1, rngs=rngs)
        self.stage0 = nnx.List([Block(4, 4, rngs), Block(4, 4, rngs)])
        self.stage1 = nnx.List([Block(4, 8, rngs)])
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        x = self.first(x)
        for block in [*self.stage0, *self.stage1]:
            x = block(x)
        return self.head(x.mean((1, 2)))


def test_resnet_of_other_names_by_agreement_of_its_blocks():
    theirs, ours, x = lively(TorchResNet()), empty(ResNet), normal(2, 16, 16, 3)
    _, report = load_into(ours, theirs, example=(x,))
    ours.eval()
    assert_same_outputs(run(ours, x), theirs, np.moveaxis(x, -1, 1))
    assert report["stage0/1/norm_b/scale"].torch == "layer1.1.bn2.weight"
    assert report["stage0/1/norm_b/scale"].how == "agreement"
    assert report["stage1/0/shortcut_conv/kernel"].how == "shape"


class LinenStack(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.ConvTranspose(4, (3, 3), padding="VALID")(nn.Conv(4, (3, 3))(x))


def test_an_example_tells_the_kinds_of_linen_layers_apart():
    steps = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.ConvTranspose2d(4, 4, 3)
    theirs, x = lively(torch.nn.Sequential(*steps)), normal(2, 6, 6, 4)
    match = {"Conv_0": "0", "ConvTranspose_0": "1"}
    variables, _ = load_into(LinenStack(), theirs.state_dict(), example=(x,), match=match)
    with torch.no_grad():
        want = theirs(torch.from_numpy(np.moveaxis(x, -1, 1))).numpy()
    got = LinenStack().apply(variables, x)
    assert_close(np.asarray(got), np.moveaxis(want, 1, -1), reduction=256)
