"""Networks of images saved for any height and width, with their gradients."""

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import Unsupported
from tests.tolerance import assert_close

MODULES = {
    "stem": nn.Conv2d(4, 6, 7, 2, 3),
    "downsampling": nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.Conv2d(6, 4, 1, 2)),
    "thirds, dilated": nn.Conv2d(4, 6, 3, 3, 2, dilation=2),
    "depthwise": nn.Conv2d(4, 4, 3, 2, 1, groups=4),
    "in groups": nn.Conv2d(4, 6, 3, 2, 1, groups=2),
    "places of a grid": nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 2, 1)),
    "means": nn.AvgPool2d(3, 2, 1),
    "means without padding": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
}
AT_LEAST_EIGHT = {"patches": nn.Conv2d(4, 6, 2, 2), "columns": nn.Unfold(3, stride=2)}
CASES = [*((x, ()) for x in MODULES), *((x, ("h >= 8", "w >= 8")) for x in AT_LEAST_EIGHT)]


@pytest.mark.parametrize(("name", "constraints"), CASES, ids=str)
def test_any_size(name, constraints, tmp_path):
    module = (MODULES | AT_LEAST_EIGHT)[name].eval()
    images = lambda h, w: np.random.default_rng(h).normal(size=(2, 4, h, w)).astype(np.float32)
    shapes = {"input": "batch, _, h, w"}
    model = anyjax.from_torch(module)
    model.save(tmp_path / "saved", images(16, 20), shapes=shapes, constraints=constraints)
    saved = anyjax.load(tmp_path / "saved")
    for size in ((15, 18), (9, 14)):
        x = torch.tensor(images(*size), requires_grad=True)
        out = module(x)
        (out**2).sum().backward()
        assert_close(saved(images(*size)), out.detach().numpy(), rtol=1e-5)
        loss = lambda x: (saved.apply(saved.params, x) ** 2).sum()
        assert_close(jax.grad(loss)(images(*size)), x.grad.numpy(), rtol=1e-4)


def test_without_a_gradient_the_constraint_is_told(tmp_path):
    model, x = anyjax.from_torch(AT_LEAST_EIGHT["patches"]), np.ones((1, 4, 8, 8), np.float32)
    with pytest.raises(Unsupported, match=r'constraints=."h >= 8"'):
        model.save(tmp_path / "saved", x, shapes={"input": "1, 4, h, w"})
    assert not (tmp_path / "saved").exists()
