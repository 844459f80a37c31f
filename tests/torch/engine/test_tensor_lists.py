"""Lists with tensors in them, as data and as indices."""

import jax
import numpy as np
import pytest
import torch

import anyjax

pytestmark = pytest.mark.sample(every=4)

X = np.arange(16, dtype=np.float32).reshape(4, 4)
I = np.arange(4)


def assigned(x, i):
    x = x.clone()
    rows, columns = zip(*torch.stack([i[:3], i[1:]], 1))
    x[rows, columns] = 5
    return x


PROGRAMS = {
    "floats": lambda x, i: torch.tensor([x[0].max(), 2, x[1, 0]]),
    "nested": lambda x, i: torch.tensor([[i.max(), 1], [3, i.min() + 1]]),
    "promoted": lambda x, i: torch.tensor([i.max(), 2.5]),
    "one-element vectors": lambda x, i: torch.tensor([i[:1], i[3:]]),
    "dtype": lambda x, i: torch.as_tensor([i.max(), 2], dtype=torch.float32),
    "no gradient": lambda x, i: torch.tensor([x[0, 0], 1.0]) * x[0, :2],
    "tuple of tuples": lambda x, i: x[tuple(i[:3]), tuple(i[1:])],
    "list as a tuple": lambda x, i: x[[i[0], i[1]]],
    "list beside a slice": lambda x, i: x[:, list(i[:2])],
    "assignment": assigned,
}


# torch's own:
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("traced", [True, False])
def test_lists_of_tensors(name, traced):
    function = PROGRAMS[name]
    given = torch.from_numpy(X).requires_grad_()
    want = function(given, torch.from_numpy(I))
    if traced:
        model = anyjax.from_torch(function)
        run = lambda x: model.apply({}, x, I)
        got = jax.jit(lambda x, i: model.apply({}, x, i))(X, I)
    else:
        model = anyjax.from_torch(lambda x: function(x, torch.arange(4)))
        run = lambda x: model.apply({}, x)
        got = jax.jit(run)(X)
    assert got.shape == tuple(want.shape)
    assert np.issubdtype(got.dtype, np.floating) == want.dtype.is_floating_point
    np.testing.assert_array_equal(got, want.detach().numpy())
    if want.requires_grad:
        want.sum().backward()
        np.testing.assert_array_equal(jax.grad(lambda x: run(x).sum())(X), given.grad.numpy())


def test_more_than_one_number_is_torchs_error():
    model = anyjax.from_torch(lambda i: torch.tensor([i[:2], i[2:]]))
    with pytest.raises((TypeError, ValueError)):
        model(I)
