"""Transposed convolutions in groups, running extremes, writing by another name of an array."""

import pytest
import torch
from torch import nn

from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import assert_same_gradients, assert_same_values, prepared

pytestmark = pytest.mark.sample(every=15)


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize(
    "layer, size",
    [
        (nn.ConvTranspose1d(4, 4, 4, stride=2, padding=1, groups=4), (2, 4, 7)),
        (nn.ConvTranspose1d(4, 6, 3, stride=2, dilation=2, groups=2, bias=False), (2, 4, 7)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), (2, 4, 5, 6)),
    ],
)
def test_transposed_convolutions_in_groups(layer, size):
    torch.manual_seed(0)
    module, inputs = Wrapped(layer).eval(), (drawn(*size),)
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)
    assert_same_values(module, model, (drawn(3, *size[1:]),))
    assert_same_gradients(module, model, inputs)


class Detached(nn.Module):
    def forward(self, x):
        y = x * 2
        y.detach().add_(1)
        return y.sum(1) + y[:, 0]


def test_all_of_an_array_by_another_name_is_written_to():
    """The gradient is that of the array before, as torch's is: source() compares that."""
    module, inputs = Detached().eval(), (drawn(2, 3),)
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)


class Running(nn.Module):
    def forward(self, x):
        x = x.sort(-1)[0] + x
        return x.cummax(-1)[0] * x.flip(0).cummin(dim=0).values.flip(0)


def test_running_extremes():
    module, inputs = Running().eval(), (drawn(4, 6),)
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)


class Parted(nn.Module):
    """Channels in equal and in other parts, none as many as there are columns."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 2, 1)

    def forward(self, x):
        one, other = self.conv(x).chunk(2, dim=1)
        few, more = self.conv(other[:, :3]).split([3, 5], dim=-3)
        return one, few + more[:, 1:4], self.out(few).sigmoid().logit(eps=0.3)


@pytest.mark.parametrize("size", [(2, 3, 5, 6), (2, 3, 4, 8)])
def test_parts_of_channels(size):
    torch.manual_seed(0)
    module, inputs = Parted().eval(), (drawn(*size),)
    _, model = prepared(module, inputs)
    assert_same_values(module, model, inputs)
    assert_same_values(module, model, (drawn(3, 3, 7, 9),))
    assert_same_gradients(module, model, inputs)


class Clipped(nn.Module):
    """Elementwise operators by their rarer names between convolutions."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3)

    def forward(self, x):
        y = torch.clip(self.conv(x), 0.1, 2.0).clamp_min(0.2).true_divide(3.0)
        return self.out(y.type_as(x))


def test_elementwise_operators_keep_channels_last():
    module, inputs = Clipped().eval(), (drawn(2, 3, 8, 8),)
    text, model = prepared(module, inputs)
    assert text[: text.index("def load_params")].count(".transpose(") == 2
    assert_same_values(module, model, inputs)
