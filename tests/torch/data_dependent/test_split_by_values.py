"""Mixtures of experts as split, a layer for each group, cat: one grouped product."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
PICKED = np.array([2, 0, 2, 2, 0, 3, 0])


class Experts(torch.nn.Module):
    """The second expert gets no rows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(4, 3, 4))
        self.second = torch.nn.Parameter(torch.randn(4, 2, 3))

    def forward(self, x, picked):
        order = picked.argsort(stable=True)
        sizes = torch.nn.functional.one_hot(picked, 4).sum(0).tolist()
        groups = x[order].split(sizes, dim=0)
        first = [torch.nn.functional.linear(groups[i], self.weight[i]) for i in range(len(sizes))]
        both = [torch.nn.functional.linear(x, w) for x, w in zip(first, self.second)]
        return torch.cat(both, dim=0)


def test_values_and_gradients():
    module = Experts()
    model = anyjax.from_torch(module)
    want = module(torch.tensor(X), torch.tensor(PICKED))
    call = jax.jit(lambda params, x: model.apply(params, x, jax.numpy.asarray(PICKED)))
    assert_close(call(model.params, X), want.detach().numpy(), reduction=4)
    grads = jax.grad(lambda params, x: (call(params, x) ** 2).sum())(model.params, X)
    (want**2).sum().backward()
    for name, parameter in module.named_parameters():
        assert_close(grads[name], parameter.grad.numpy(), reduction=28)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, sizes: x.split(sizes)[0],
        lambda x, sizes: x.split(sizes)[0].relu(),
        lambda x, sizes: torch.relu(x.split(sizes)[0]),
        lambda x, sizes: torch.cat(x.split(sizes)[::-1]),
        lambda x, sizes: x.split(sizes)[0] + 1,
        lambda x, sizes: x.T.split(sizes, 1),
        lambda x, sizes: torch.zeros(sizes),
        lambda x, sizes: torch.tensor(sizes),
        lambda x, sizes: x.tensor_split(sizes),
        lambda x, sizes: x.repeat(sizes),
        lambda x, sizes: x[: sizes[0]],
        lambda x, sizes: sum(sizes),
        lambda x, sizes: [0, *sizes],
        lambda x, sizes: sizes + sizes,
        lambda x, sizes: x if sizes else -x,
        lambda x, sizes: x if 2 in sizes else -x,
        lambda x, sizes: x if sizes == [1] else -x,
        lambda x, sizes: torch.cat([x, x.split(sizes)[0]]),
        lambda x, sizes: torch.cat([x.split(sizes)[0], x]),
        lambda x, sizes: {sizes: x},
        lambda x, sizes: np.array(sizes),
        lambda x, sizes: sizes,
        lambda x, sizes: {"sizes": sizes},
    ],
)
def test_any_other_use_is_an_error(use):
    model = anyjax.from_torch(lambda x, picked: use(x, picked.tolist()))
    with pytest.raises(DataDependent, match="picked"):
        jax.jit(lambda x, picked: model.apply({}, x, picked))(X, PICKED)
