"""What the tests of load_into share: torch modules with lively numbers, and comparison."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from flax import nnx

from tests.tolerance import assert_close

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def lively(module):
    """The module with random numbers everywhere: fresh norms and biases are all alike."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, x in module.state_dict().items():
            if x.is_floating_point():
                x.copy_(torch.rand(x.shape) + 0.5 if "var" in name else torch.randn(x.shape) * 0.4)
    return module.eval()


def assert_same_outputs(got, module, x, reduction=256):
    with torch.no_grad():
        want = module(torch.from_numpy(np.asarray(x)))
    want = (want[0] if isinstance(want, tuple) else want).numpy()
    assert_close(np.asarray(got), want, reduction=reduction)


def empty(cls, *args):
    """An nnx module of shapes alone, which costs no compilation."""
    return nnx.eval_shape(lambda: cls(nnx.Rngs(0), *args))


@nnx.jit
def run(module, *args):
    """The module's output, compiled as one."""
    return module(*args)


def torch_mlp(*sizes):
    steps = []
    for a, b in itertools.pairwise(sizes):
        steps += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return lively(torch.nn.Sequential(*steps[:-1]))


class TorchTied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.ln_f = torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8)
        self.lm_head = torch.nn.Linear(8, 11, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        return self.lm_head(self.ln_f(self.wte(ids)))
