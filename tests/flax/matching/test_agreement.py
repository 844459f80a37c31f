import numpy as np
import pytest
import torch
from flax import nnx

from anyjax.errors import WrongWeights
from anyjax.flax import load_into


class Difference(nnx.Module):
    def __init__(self, rngs):
        self.plus, self.minus = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return self.plus(x) - self.minus(x)


class TorchDifference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.taken, self.given = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.given(x) - self.taken(x)


class Stack(nnx.Module):
    def __init__(self, rngs, count):
        self.blocks = nnx.List([Difference(rngs) for _ in range(count)])

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("example", [True, False])
def test_one_block_decides_for_all(example):
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(*[TorchDifference() for _ in range(3)]).eval()
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    given = {"example": (x,)} if example else {}
    ours, report = load_into(Stack(nnx.Rngs(0), 3), theirs, **given)
    assert [report[f"blocks/{i}/plus/bias"].torch for i in range(3)] == [
        f"{i}.given.bias" for i in range(3)
    ]
    assert {m.how for m in report} == {"agreement"}
    want = theirs(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours(x), want, rtol=1e-4, atol=1e-6)


def test_equal_arrays_need_no_decision():
    theirs = TorchDifference()
    with torch.no_grad():
        for p in theirs.parameters():
            p.fill_(0.5)
    _, report = load_into(Difference(nnx.Rngs(0)), theirs.state_dict())
    assert {m.how for m in report} == {"shape"}


def test_too_few_torch_layers_are_told():
    state = torch.nn.ModuleDict({"one": torch.nn.Linear(4, 4)}).state_dict()
    with pytest.raises(WrongWeights, match="4 variables are not filled, 2 torch tensors"):
        load_into(Difference(nnx.Rngs(0)), state)
