"""Modules with tables that no optimizer sees, writes to parts of arrays, sizes held in arrays."""

import math

import torch
from torch import nn


class Positions(nn.Module):
    """Sines, a mask, and statistics of the data that only a file of weights has."""

    def __init__(self, length=40, width=16):
        super().__init__()
        rates = torch.exp(torch.arange(width // 2) * (-math.log(10000.0) / (width // 2)))
        angles = torch.arange(length)[:, None] * rates
        table = torch.cat([angles.sin(), angles.cos()], 1)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("mean", torch.rand(length, width))
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        n = x.shape[1]
        x = x + self.table[:n] - self.mean[:n]
        scores = (x @ x.mT).masked_fill(~self.mask[:n, :n], -math.inf)
        return self.out(scores.softmax(-1) @ x)


class Interleaved(nn.Module):
    """Writes to a part of an array from other parts of it, the whole read later."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        waves = (x * self.scale).sin()
        part = waves[0]
        part[:, 1:4:2] = waves[1, :, 1:4:2]
        part[:, 2:5:2] = waves[2, :, 2:5:2]
        return torch.cat([part, part], -1)


class Indexer(nn.Module):
    """Places chosen without a gradient."""

    def __init__(self):
        super().__init__()
        self.key = nn.Linear(8, 4)

    @torch.no_grad()
    def forward(self, x):
        scores = torch.matmul(self.key(x), self.key(x).mT)
        return scores.topk(2, -1)[1]


class Sparse(nn.Module):
    """Attention to the chosen places alone."""

    def __init__(self):
        super().__init__()
        self.indexer = Indexer()
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        places = self.indexer(x)
        seen = torch.zeros(*x.shape[:2], x.shape[1]).scatter(-1, places, 1.0)
        return self.out(seen @ x)


class Grown(nn.Module):
    """A list of nothing to which values are joined."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        kept = torch.cat([torch.tensor([]), self.out(x)], dim=-2)
        return torch.cat([kept, x[..., :3]], dim=-2)


class Masked(nn.Module):
    """One number where a mask says so, of whole rows too, and membership."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 4)

    def forward(self, tokens):
        shown = tokens.clone()
        shown[tokens == 3] = 0
        x = self.embed(shown)
        x = x * 2
        x[torch.isin(tokens, torch.tensor([4, 5]))] = 1.5
        return x


class Scaled(nn.Module):
    """Divides by a length that only its caller's input has."""

    def __init__(self, told):
        super().__init__()
        self.linear, self.told = nn.Linear(4, 4), told

    def forward(self, x, mask):
        x = self.linear(x)
        return x.masked_fill(mask, 0) / mask.shape[1] if self.told else x.masked_fill(mask, 0)


class Alternating(nn.Module):
    """Layers of which every other one needs a size."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Scaled(i == 1) for i in range(3)])

    def forward(self, x, tokens):
        mask = (tokens > 9)[..., None]
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Cached(nn.Module):
    """Keeps positions for as long as the length is the same."""

    def __init__(self):
        super().__init__()
        self.out, self.kept, self.waves = nn.Linear(4, 3), None, {}

    def forward(self, x):
        if self.kept is None or self.kept.shape[0] != x.shape[1]:
            self.kept = torch.arange(x.shape[1])[:, None] / 10
        if "sines" not in self.waves:
            self.waves["sines"] = torch.arange(3).sin()
        return self.out(x + self.kept) + self.waves["sines"]


class Stack(nn.Sequential):
    """A list of layers with a forward of its own."""

    def __init__(self):
        super().__init__(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x):
        for layer in self:
            x = layer(x)
        return x.sin()


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = Stack()

    def forward(self, x):
        return self.stack(x) + x


class Tower(nn.Module):
    """Patches of several pictures in one row; an array tells the grid of each."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, patches, grids):
        parts = self.embed(patches).split(grids.prod(1).tolist())
        rows = [x.reshape(h, w, 8).mean(1) for x, (h, w) in zip(parts, grids.tolist())]
        return self.out(torch.cat(rows)) + grids[0, 0]


class Rounds(nn.Module):
    """A length rounded up by arithmetic with a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("stride", torch.tensor(4), persistent=False)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        whole = torch.ceil(x.shape[1] / self.stride).long() * self.stride
        return self.out(torch.nn.functional.pad(x, (0, 0, 0, whole - x.shape[1])))


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CASES = {
    "positions": (Positions, (drawn(2, 7, 16),), (drawn(3, 9, 16),)),
    "grown": (Grown, (drawn(2, 7, 8),), (drawn(3, 9, 8),)),
    "masked": (Masked, (torch.arange(14).reshape(2, 7),), (torch.arange(27).reshape(3, 9),)),
    "alternating": (
        Alternating,
        (drawn(2, 7, 4), torch.arange(14).reshape(2, 7)),
        (drawn(3, 5, 4), torch.arange(15).reshape(3, 5)),
    ),
    "cached": (Cached, (drawn(2, 7, 4),), (drawn(3, 9, 4),)),
    "stacked": (Stacked, (drawn(2, 7, 4),), (drawn(3, 9, 4),)),
    "sparse": (Sparse, (drawn(2, 7, 8),), (drawn(3, 9, 8),)),
    "interleaved": (Interleaved, (drawn(3, 7, 6),), (drawn(3, 9, 6),)),
}
