"""``int(index.max()) + 1`` under jit: sizes within a bound, and NaN beyond it."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import DataDependent
from anyjax.torch.data_dependent.sizes_of_values import Int
from tests.tolerance import assert_close

X = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
BATCHES = [[0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [0, 0, 3, 3, 3]]


def pooled(x, batch):
    """The sum of each graph, as many as there are."""
    count = int(batch.max()) + 1
    out = x.new_zeros(count, 2)
    return out.index_add(0, batch, x)


def by_item(x, batch):
    size = (batch.max() + 1).item()
    return torch.zeros(size, 2).scatter_add(0, batch[:, None].expand(-1, 2), x)


def dense(x, batch):
    """As to_dense_batch has it: the rows of each graph, padded to the largest."""
    graphs = int(batch.max()) + 1
    counts = x.new_zeros(graphs, dtype=torch.long).scatter_add(0, batch, torch.ones_like(batch))
    most = int(counts.max())
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    place = torch.arange(len(x)) - first[batch] + batch * most
    out = x.new_zeros(graphs * most, 2).index_copy(0, place, x)
    return out.view(graphs, most, 2).sum(1), isinstance(most, int)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("function", [pooled, by_item])
def test_graphs_of_a_batch(function, batch):
    batch = np.array(batch)
    want = function(torch.from_numpy(X), torch.from_numpy(batch))
    model = anyjax.from_torch(function)
    for enable in (False, True):
        with jax.enable_x64(enable):
            rows = jax.jit(model.apply)({}, X, batch)
        assert int(rows.length) == len(want)
        assert_close(rows.values[: len(want)], want, reduction=8)
        assert not rows.values[len(want) :].any()


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_rows_of_each_graph(batch):
    want, _ = dense(torch.from_numpy(X), torch.from_numpy(np.array(batch)))
    rows, is_int = jax.jit(anyjax.from_torch(dense).apply)({}, X, np.array(batch))
    assert is_int and rows.length == len(want)
    assert_close(rows.values[: len(want)], want, reduction=8)


def test_gradients():
    batch = np.array(BATCHES[0])
    loss = lambda x: (pooled(x, torch.from_numpy(batch)) ** 2).sum()
    x = torch.from_numpy(X).requires_grad_()
    model = anyjax.from_torch(lambda x, batch: (pooled(x, batch) ** 2).sum())
    grad = jax.jit(jax.grad(lambda x, batch: model.apply({}, x, batch)))(X, batch)
    assert_close(grad, torch.autograd.grad(loss(x), x)[0], reduction=8)


def test_more_graphs_than_nodes_are_no_numbers():
    rows = jax.jit(anyjax.from_torch(pooled).apply)({}, X, np.array([0, 0, 1, 1, 7]))
    assert np.isnan(rows.values).all()


def test_a_number_that_nothing_bounds_is_refused():
    model = anyjax.from_torch(lambda n: torch.zeros(int(n) + 1))
    with pytest.raises(DataDependent):
        jax.jit(model.apply)({}, np.int32(3))


def test_the_module_has_its_own_int_back():
    jax.jit(anyjax.from_torch(pooled).apply)({}, X, np.array(BATCHES[0]))
    assert "int" not in globals()
    assert Int("3") == 3 and isinstance(3, Int) and issubclass(bool, Int)
