"""Numbers that follow from an array of sizes."""

import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from tests.flax.codegen.running import arrays, assert_same_gradients, prepared
from tests.flax.codegen.tables import drawn
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=15)


class Packed(nn.Module):
    """Pictures of several sizes in one row: places from their grid, attention in each alone."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 6)
        self.places = nn.Parameter(torch.randn(5, 6))

    def forward(self, patches, grid):
        rows = torch.cat([torch.arange(h)[:, None].expand(h, w).flatten() for h, w in grid])
        x = self.proj(patches) + self.places[rows]
        ends = torch.repeat_interleave(grid[:, 0] * grid[:, 1], 1).cumsum(0)
        lengths = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
        mixed = [group.softmax(0) @ group.mT @ group for group in x.split(lengths)]
        return torch.cat(mixed) if grid.prod(1).sum() > 3 else x


class Selected(nn.Module):
    """How many rows a mask selects, and how often each is repeated, follows from the sizes."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, table, counts):
        long = counts > 1
        selected = self.proj(table)[long]
        firsts = torch.unique_consecutive(counts.repeat_interleave(2))
        repeated = self.proj(table).repeat_interleave(counts, dim=0)
        return selected.sum(0) + repeated.cumsum(0)[-1] + firsts.float().mean()


class Written(nn.Module):
    """Unknown numbers take the place of known ones."""

    def forward(self, x, sizes):
        counts = sizes.clone()
        counts[0] = x.argmax()
        return x[: int(counts[0])]


@pytest.mark.parametrize(
    "module, inputs",
    [
        (Packed, (drawn(14, 4), torch.tensor([[2, 3], [4, 2]]))),
        (Selected, (drawn(3, 4), torch.tensor([[2, 1, 3]])[0])),
    ],
)
def test_numbers_of_sizes_are_those_of_the_example(module, inputs):
    torch.manual_seed(0)
    module = module().eval()
    text, model = prepared(module, inputs)
    with torch.no_grad():
        want = module(*inputs).numpy()
    assert "grid):" not in text and "counts):" not in text
    assert_close(model(*arrays(inputs[:1])), want, reduction=64)


def test_what_unknown_numbers_are_written_to_is_unknown():
    with pytest.raises(Unsupported):
        anyjax.flax.source(Written(), drawn(6), torch.tensor([2, 3]))


class Twice(nn.Module):
    """One value goes by two names."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        x = self.proj(x)
        return {"last": x, "pooled": x}


def test_a_result_that_is_returned_twice():
    torch.manual_seed(0)
    module = Twice().eval()
    text, model = prepared(module, (drawn(2, 4),))
    assert text.count("self.proj(") == 1
    assert set(model(*arrays((drawn(2, 4),)))) == {"last", "pooled"}
    assert_same_gradients(module, model, (drawn(2, 4),))
