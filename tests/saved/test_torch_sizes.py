"""Sizes with names of PyTorch models: the trace holds no size of the example."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import WrongArguments
from tests.models import tiny
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)


class Net(torch.nn.Module):
    """Views, sizes as values, a mean, a mask made of sizes."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        batch, length, _ = x.shape
        h = torch.relu(self.one(x.reshape(batch * length, 3))).view(batch, length, 4)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = (h @ h.transpose(1, 2) / length).masked_fill(~mask, -1e9).softmax(-1)
        return self.two(scores @ h).mean(1)


def test_a_module(tmp_path):
    model = anyjax.from_torch(Net())
    draw = np.random.default_rng(0).standard_normal
    model.save(tmp_path / "m", draw((2, 4, 3)).astype("f"), shapes={"x": "batch, length, _"})
    back = anyjax.load(tmp_path / "m")
    for batch, length in ((2, 4), (1, 7), (3, 1)):
        x = draw((batch, length, 3)).astype("f")
        assert_close(back(x), model(x), reduction=4 * length)
    x = draw((3, 5, 3)).astype("f")
    loss = lambda m: lambda p: (m.apply(p, x) ** 2).sum()
    got, want = (jax.grad(loss(m))(m.params) for m in (back, model))
    assert_close(got, want, reduction=60, scale=1.0)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_a_transformer(tmp_path, name):
    module, inputs = tiny.build(name)
    model = anyjax.from_torch(module)
    given = {k: v.numpy() for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    options = {"use_cache": False} if name != "bert" else {}
    shapes = {k: "batch, length" for k, v in given.items() if v.ndim == 2}
    model.save(tmp_path / "m", **given, **options, shapes=shapes, constraints=("length <= 24",))
    back = anyjax.load(tmp_path / "m")
    for batch, length in ((1, 3), (3, 24)):
        ids = np.random.default_rng(length).integers(1, 50, (batch, length)).astype(np.int32)
        other = {k: np.ones((batch, length), v.dtype) for k, v in given.items()}
        call = {**other, "input_ids": ids, **options}
        got, want = (jax.tree.leaves(m(**call))[0] for m in (back, model))
        assert_close(got, want, reduction=256)
    with pytest.raises(WrongArguments, match="length <= 24 does not hold"):
        back(**{k: np.ones((1, 25), v.dtype) for k, v in given.items()}, **options)
