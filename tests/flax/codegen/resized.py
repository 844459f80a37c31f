"""Modules that resize, pool, and look through windows."""

import torch
import torch.nn.functional as F
from torch import nn


class Resized(nn.Module):
    """Pictures made larger and smaller in all of torch's ways."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        x = self.conv(x)
        doubled = F.interpolate(x, scale_factor=2, mode="bilinear")
        larger = F.interpolate(x, size=(21, 19), mode="bilinear")
        corners = F.interpolate(x, size=(21, 19), mode="bilinear", align_corners=True)
        smaller = F.interpolate(x, size=(5, 4), mode="bilinear")
        smooth = F.interpolate(x, size=(5, 4), mode="bilinear", antialias=True)
        cubic = F.interpolate(x, scale_factor=1.7, mode="bicubic")
        cubic_corners = F.interpolate(x, size=(13, 5), mode="bicubic", align_corners=True)
        smooth_cubic = F.interpolate(x, size=(5, 17), mode="bicubic", antialias=True)
        nearest = F.interpolate(x, size=(11, 5), mode="nearest")
        exact = F.interpolate(x, scale_factor=1.5, mode="nearest-exact")
        line = F.interpolate(x.flatten(2), scale_factor=2, mode="linear")
        both = doubled, larger, corners, smaller, smooth
        return *both, cubic, cubic_corners, smooth_cubic, nearest, exact, line


class Sampled(nn.Module):
    """Pictures read at places that are computed, some of them outside."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.places = nn.Linear(5, 2)

    def forward(self, x, queries):
        x, grid = self.conv(x), 1.2 * self.places(queries).tanh()
        zeros = F.grid_sample(x, grid, align_corners=False)
        border = F.grid_sample(x, grid, padding_mode="border", align_corners=True)
        cubic = F.grid_sample(x, grid, "bicubic", "border", align_corners=False)
        nearest = F.grid_sample(x, grid, "nearest", align_corners=False)
        return zeros, border, cubic, nearest


class Windows(nn.Module):
    """Pooling whose last window sticks out, and windows as arrays."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.Parameter(torch.rand(4) + 0.5)

    def forward(self, x):
        x = self.conv(x)
        best = F.max_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 3, 2, 1, ceil_mode=True)
        mean = F.avg_pool2d(x, 3, 2, ceil_mode=True)
        inner = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        normed = F.group_norm(x, 2, self.norm, None)
        windows = x.unfold(2, 3, 2), x.mean(1).unfold(-1, 2, 1)
        return *best, mean, inner, normed, *windows, F.unfold(x, (2, 3), 1, 1, 2)


class Squared(nn.Module):
    """Adaptive pooling of one size of picture."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return F.adaptive_avg_pool2d(self.conv(x[..., :8, :6]), (4, 3))


class Mixed(nn.Module):
    """Fourier transforms, weights with their lengths apart, differences, norms."""

    def __init__(self):
        super().__init__()
        self.linear = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))

    def forward(self, x):
        x = self.linear(x)
        waves = torch.fft.fftn(x, dim=(1, 2)).real, torch.fft.rfft(x, norm="ortho").abs()
        steps = torch.diff(x, prepend=x[..., :1], dim=-1)
        lengths = torch.linalg.norm(x, dim=-1, keepdim=True), x.norm(p=1, dim=1)
        return *waves, steps, *lengths, x @ torch.eye(5, 7, dtype=x.dtype)


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CASES = {
    "resized": (Resized, (drawn(2, 3, 8, 9),), (drawn(3, 3, 10, 7),)),
    "sampled": (
        Sampled,
        (drawn(2, 3, 8, 9), drawn(2, 4, 6, 5)),
        (drawn(3, 3, 7, 6), drawn(3, 5, 4, 5)),
    ),
    "windows": (Windows, (drawn(2, 3, 8, 9),), (drawn(3, 3, 9, 6),)),
    "squared": (Squared, (drawn(2, 3, 8, 9),), (drawn(3, 3, 9, 8),)),
    "mixed": (Mixed, (drawn(2, 4, 6),), (drawn(3, 5, 6),)),
}
