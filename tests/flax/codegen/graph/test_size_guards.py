"""Where the author's code decides by sizes, other sizes are refused instead of taken along."""

import pytest
import torch
from torch import nn

from tests.flax.codegen.models import drawn
from tests.flax.codegen.running import arrays, assert_same_values, prepared

pytestmark = pytest.mark.sample(every=15)


class Remainder(nn.Module):
    def forward(self, x):
        if x.shape[1] % 3 == 2:
            return x * 2
        return x


class Long(nn.Module):
    """In a submodule, and of a size that is computed."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return x * self.scale if x.shape[1] > 5 else -x

    def __init__(self):
        super().__init__()
        self.inner = self.Inner()

    def forward(self, x):
        return self.inner(torch.cat([x, x], 1))


class Rounds(nn.Module):
    """As many rounds as there are columns: the file has those of the example."""

    def forward(self, x):
        y = x[:, 0]
        for i in range(1, x.shape[1]):
            y = y * 0.5 + x[:, i]
        return y


class Both(nn.Module):
    def forward(self, x, y):
        if x.shape[0] == y.shape[1] or x.shape[1] >= 9:
            return x.sum() + y.sum()
        return x.sum() - y.sum()


class Square(nn.Module):
    """Two sizes that have to be the same."""

    def forward(self, x):
        if x.shape[1] != x.shape[2]:
            return x
        return x @ x.mT


CASES = {
    "square": (Square, (drawn(2, 4, 4),), (drawn(3, 5, 5),), (drawn(2, 4, 5),)),
    "remainder": (Remainder, (drawn(2, 5),), (drawn(3, 8),), (drawn(2, 6),)),
    "submodule": (Long, (drawn(2, 5),), (drawn(3, 3),), (drawn(2, 2),)),
    "rounds": (Rounds, (drawn(2, 5),), (drawn(3, 5),), (drawn(2, 6),)),
    "two": (
        Both,
        (drawn(4, 5), drawn(3, 7)),
        (drawn(6, 5), drawn(3, 2)),
        (drawn(6, 5), drawn(3, 6)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_decide_otherwise_are_refused(name):
    cls, example, same, refused = CASES[name]
    module = cls().eval()
    text, model = prepared(module, example)
    assert_same_values(module, model, example)
    assert_same_values(module, model, same)
    with pytest.raises(ValueError, match=r"decide at test_size_guards\.py:\d+"):
        model(*arrays(refused))
    assert text.count("raise ValueError") == 2  # one is the loader's


def test_what_sizes_do_not_decide_is_not_asked():
    text, _ = prepared(nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2)), (drawn(2, 3, 12, 12),))
    assert "decide at" not in text


class Padded(nn.Module):
    """Halves may lack the last place, which is put in again."""

    def forward(self, x):
        length = x.shape[1]
        y = x[:, : length // 2 * 2]
        y = y[:, ::2].repeat_interleave(2, dim=1) + y
        if y.shape[1] < length:
            y = nn.functional.pad(y, (0, 0, 0, length - y.shape[1]))
        return y


def test_what_pads_only_what_is_missing_serves_what_lacks_nothing():
    _, model = prepared(Padded().eval(), (drawn(2, 7, 3),))
    for length in (7, 8, 5):
        assert_same_values(Padded(), model, (drawn(2, length, 3),))
