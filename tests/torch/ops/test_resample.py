"""Resizing, sampling on grids, and windows as columns: values and gradients of every mode."""

import itertools

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import anyjax
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
normal = lambda *shape: RNG.standard_normal(shape).astype(np.float32)


def assert_same(function, *arrays):
    """Outputs, and gradients of a weighted sum, in one compiled program."""
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = function(*tensors)
    weight = np.cos(np.arange(want.numel(), dtype=np.float32)).reshape(want.shape)
    grads = torch.autograd.grad((want * torch.from_numpy(weight)).sum(), tensors)
    model = anyjax.from_torch(function)

    def loss(arrays):
        out = model.apply({}, *arrays)
        return (out * weight).sum(), out

    got_grads, got = jax.jit(jax.grad(loss, has_aux=True))(list(arrays))
    assert_close(got, want, reduction=64)
    assert_close(got_grads, list(grads), reduction=1024)


IMAGES = {3: normal(2, 2, 7), 4: normal(2, 2, 5, 7), 5: normal(1, 2, 4, 5, 3)}
MODES = {
    "nearest": IMAGES,
    "nearest-exact": IMAGES,
    "area": IMAGES,
    "linear": [3],
    "bilinear": [4],
    "trilinear": [5],
    "bicubic": [4],
}
SIZES = {
    "larger": {"size": 9},
    "smaller": {"size": 3},
    "one": {"size": 1},
    "factor": {"scale_factor": 1.7},
    "a small factor": {"scale_factor": 0.6},
    "a factor worked out again": {"scale_factor": 1.7, "recompute_scale_factor": True},
}
RESIZES = {
    f"{mode} {rank}d, {name}": (rank, {"mode": mode, **size})
    for mode, ranks in MODES.items()
    for rank, (name, size) in itertools.product(ranks, SIZES.items())
}
RESIZES |= {
    f"{name}, corners": (rank, {**size, "align_corners": True})
    for name, (rank, size) in RESIZES.items()
    if "linear" in name or "cubic" in name
}
RESIZES |= {
    f"{name}, antialias": (rank, {**size, "antialias": True})
    for name, (rank, size) in RESIZES.items()
    if size["mode"] in ("bilinear", "bicubic")
}


@pytest.mark.parametrize("mode", MODES)
def test_interpolate(mode):
    cases = {name: case for name, case in RESIZES.items() if case[1]["mode"] == mode}
    for rank in MODES[mode]:
        chosen = [options for r, options in cases.values() if r == rank]

        def every(x, chosen=chosen):
            return torch.cat([F.interpolate(x, **options).flatten() for options in chosen])

        assert_same(every, IMAGES[rank])


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(padding, corners):
    def every(x, grid, *volume):
        how = {"padding_mode": padding, "align_corners": corners}
        modes = ["bilinear", "nearest", "bicubic"]
        planes = [F.grid_sample(x, grid, mode=mode, **how) for mode in modes]
        solids = [F.grid_sample(*volume, mode=mode, **how) for mode in modes[:2]]
        return torch.cat([y.flatten() for y in planes + solids])

    grids = 1.5 * normal(2, 6, 4, 2), 1.5 * normal(1, 3, 4, 2, 3)
    assert_same(every, IMAGES[4], grids[0], IMAGES[5], grids[1])


@pytest.mark.parametrize("corners", [False, True])
def test_affine_grid(corners):
    flat = lambda theta: F.affine_grid(theta, [2, 1, 3, 4], align_corners=corners)
    assert_same(flat, normal(2, 2, 3))
    assert_same(
        lambda theta: F.affine_grid(theta, [1, 1, 2, 2, 3], align_corners=corners), normal(1, 3, 4)
    )


WINDOWS = {
    "plain": {"kernel_size": 2},
    "all": {"kernel_size": (2, 3), "dilation": (2, 1), "padding": (1, 2), "stride": (2, 1)},
    "with gaps": {"kernel_size": 2, "stride": 3},
}


@pytest.mark.parametrize("name", WINDOWS)
def test_fold_and_unfold(name):
    windows, image = WINDOWS[name], IMAGES[4]
    columns = F.unfold(torch.tensor(image), **windows)
    assert_same(lambda x: F.unfold(x, **windows), image)
    assert_same(lambda x: F.fold(x, image.shape[2:], **windows), columns.numpy())
    assert_same(lambda x: F.unfold(x, **windows), image[0])
    assert_same(lambda x: F.fold(x, image.shape[2:], **windows), columns[0].numpy())


def test_volumes_under_vmap():
    """Seven dimensions and one of taps: a sum over their product crashes jaxlib 0.10."""
    x = torch.randn(3, 2, 3, 4, 4, 4)
    resized = lambda x: torch.nn.functional.interpolate(x, size=(5, 5, 5), mode="trilinear")
    model = anyjax.from_torch(resized)
    got = jax.jit(jax.vmap(lambda x: model.apply({}, x)))(x.numpy())
    assert_close(got, torch.stack([resized(part) for part in x]), reduction=8)


PADDINGS = ["zeros", "border", "reflection"]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_where_there_is_no_picture(mode, padding):
    """torch's three dimensions differ from its two where it rounds what is no number."""
    ends = np.array([0, 0.5, -1, 1, np.nan, 1.5, -3, np.inf, -np.inf], np.float32)
    ends = ends[:-2] if padding == "reflection" else ends
    for rank in (2, 3):
        if rank == 3 and padding != "zeros":
            ends = ends[np.isfinite(ends)]
        grid = np.stack([np.roll(ends, i) for i in range(rank)], -1)[(None,) * rank]
        image = normal(1, 2, *[2, 3, 4][-rank:])
        assert_same_values(
            lambda i, g: F.grid_sample(i, g, mode, padding, align_corners=False),
            image,
            grid,
            reduction=16,
        )


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_grid_sample_gradients_at_the_border(mode, padding, align_corners):
    """At the border itself the gradient is that of what lies beyond it."""
    ends = np.array([0, 0.5, -1, 1, -0.75, 0.75, -1.5, 3], np.float32)
    grid = np.stack([ends, np.roll(ends, 1)], -1)[None, None]
    sample = lambda i, g: F.grid_sample(i, g, mode, padding, align_corners=align_corners)
    assert_same_gradients(sample, normal(1, 2, 3, 4), grid, reduction=256)


HALF = lambda x: F.avg_pool2d(x, 2)
OPEN = {
    "nearest": lambda x: F.interpolate(x, size=(5, 9), mode="nearest"),
    "nearest-exact": lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(HALF(x), size=x.shape[-2:], mode="bilinear"),
    "corners": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "bicubic": lambda x: F.interpolate(x, size=(8, 5), mode="bicubic"),
    "aliases": lambda x: F.interpolate(x, size=(4, 5), mode="bicubic", antialias=True),
    "factor without aliases": lambda x: F.interpolate(
        x, scale_factor=0.5, mode="bilinear", antialias=True
    ),
    "mean": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "max": lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
    "linspace": lambda x: x * torch.linspace(0, 1, x.shape[-1]),
    "affine": lambda x: F.grid_sample(
        x, F.affine_grid(torch.eye(2, 3)[None], [1, 2, *x.shape[2:]], False), align_corners=False
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name):
    model = anyjax.from_torch(OPEN[name])
    sizes = jax.export.symbolic_shape("h, w", constraints=["h >= 2", "w >= 2"])
    like = jax.ShapeDtypeStruct((1, 2, *sizes), np.float32)
    program = jax.export.export(jax.jit(lambda x: model.apply({}, x)))(like)
    for shape in ((2, 3), (7, 12), (20, 5)):
        x = normal(1, 2, *shape)
        want = jax.tree.map(lambda y: y.numpy(), OPEN[name](torch.from_numpy(x)))
        assert_close(program.call(x), want, reduction=64)


def test_open_sizes_that_are_refused():
    sizes = jax.export.symbolic_shape("h, w")
    like = jax.ShapeDtypeStruct((1, 2, *sizes), np.float32)
    inexact = anyjax.from_torch(lambda x: F.interpolate(x, scale_factor=0.7))
    with pytest.raises(anyjax.errors.Unsupported, match=r"scale_factor=0\.7"):
        jax.export.export(jax.jit(lambda x: inexact.apply({}, x)))(like)
    image = anyjax.from_torch(lambda x: F.interpolate(x, size=(3, 4), mode="bilinear"))
    like = jax.ShapeDtypeStruct((1, 2, *sizes), np.uint8)
    with pytest.raises(anyjax.errors.Unsupported, match="an image of uint8"):
        jax.export.export(jax.jit(lambda x: image.apply({}, x)))(like)
