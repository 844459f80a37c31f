import jax
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec
from torch.utils.data import DataLoader

from anyjax.errors import NoData, WrongBatch
from anyjax.train import Batches, Shuffle, numpy_collate, prefetch

pytestmark = pytest.mark.sample(every=2)


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return {"x": torch.full((3,), float(i)), "y": i * i, "pair": (i, np.float32(i))}


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.conformance)])
def test_dataloaders_give_numpy(workers):
    order = Shuffle(10, key=1)
    options = dict(num_workers=workers, multiprocessing_context="spawn") if workers else {}
    loader = DataLoader(Squares(), 4, sampler=order, collate_fn=numpy_collate, **options)
    batches = list(loader)
    assert [b["x"].shape for b in batches] == [(4, 3), (4, 3), (2, 3)]
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(batches))
    seen = np.concatenate([b["x"][:, 0] for b in batches]).astype(int)
    np.testing.assert_array_equal(seen, order.order())
    assert type(batches[0]["pair"]) is tuple


def test_samples_of_unequal_shapes_are_refused():
    with pytest.raises(WrongBatch, match=r"samples of shapes \(2,\), \(3,\)"):
        numpy_collate([np.ones(2), np.ones(3)])


def test_each_epoch_has_its_own_order_and_the_key_repeats_it():
    orders = []
    for key in (0, jax.random.key(0), 1):
        shuffle = Shuffle(50, key)
        for epoch in (0, 1):
            shuffle.set_epoch(epoch)
            orders.append(tuple(shuffle))
    assert orders[:2] == orders[2:4] and len(set(orders)) == 4
    shuffle.set_epoch(1, 45)
    assert tuple(shuffle) == orders[-1][45:] and len(shuffle) == 5


@pytest.mark.parametrize("key", [None, 0])
def test_batches_begin_in_the_middle_of_an_epoch(key):
    batches = Batches({"x": np.arange(11), "y": np.arange(22).reshape(11, 2)}, 3, key=key)
    batches.set_epoch(2)
    whole = list(batches)
    batches.set_epoch(2, 2)
    assert len(whole) == len(batches) == 3
    np.testing.assert_array_equal(next(iter(batches))["y"], whole[2]["y"])


def test_the_rest_may_come_as_well():
    batches = Batches(np.arange(5), 2, rest=True)
    assert [len(b) for b in batches] == [2, 2, 1] and len(batches) == 3


@pytest.mark.parametrize("data", [np.ones((2, 1)), {}])
def test_too_few_rows_are_refused(data):
    with pytest.raises(NoData, match="make no batch of 3"):
        Batches(data, 3)


def test_arrays_of_other_lengths_are_refused():
    with pytest.raises(WrongBatch, match="arrays of 4, 5 rows"):
        Batches({"x": np.ones((5, 2)), "y": np.ones(4)}, 2)


def test_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"x": [[i, i] for i in range(7)], "y": list(range(7))})
    batches = list(Batches(data, 3, key=0))
    assert [b["x"].shape for b in batches] == [(3, 2), (3, 2)]
    np.testing.assert_array_equal(batches[0]["x"][:, 0], batches[0]["y"])


def test_prefetched_batches_lie_where_they_are_asked_for():
    mesh = jax.make_mesh((4,), ("data",))
    over = NamedSharding(mesh, PartitionSpec("data"))
    (batch,) = prefetch([{"x": np.ones((8, 2)), "name": "first"}], sharding=over)
    assert batch["x"].sharding == over and batch["name"] == "first"


def test_errors_come_in_their_turn():
    def loader():
        yield np.ones(1)
        raise KeyError("lost")

    batches = prefetch(loader(), 4)
    assert next(batches) == 1
    with pytest.raises(KeyError, match="lost"):
        next(batches)


def test_a_loader_may_reuse_its_memory():
    memory = np.zeros((64, 64), np.float32)

    def loader():
        for i in range(4):
            memory[:] = i
            yield memory

    for size in (1, 2, 4):
        assert [int(batch[0, 0]) for batch in prefetch(loader(), size)] == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_shares_make_the_batches_of_one(count):
    """For any number of processes, in the order of the rows; for samples of a loader as sets."""
    data, whole = np.arange(24), [*Batches(np.arange(24), 8, key=1)]
    parts = [Batches(data, 8, key=1) for _ in range(count)]
    for i, part in enumerate(parts):
        part.set_share(i, count)
    for rows, *own in zip(whole, *parts, strict=True):
        assert np.concatenate(own).tolist() == rows.tolist()
    orders = [Shuffle(26, key=1) for _ in range(count)]
    for i, order in enumerate(orders):
        order.set_share(i, count)
    size, alone = 8 // count, [*Shuffle(26, key=1)]
    for batch in range(26 // 8):
        own = [x for order in orders for x in [*order][batch * size : (batch + 1) * size]]
        assert sorted(own) == sorted(alone[batch * 8 : (batch + 1) * 8])
    assert {len(order) for order in orders} == {26 // count}


def test_batches_that_cannot_be_shared():
    for batches in (Batches(np.arange(24), 8), Batches(np.arange(8), 6, rest=True)):
        with pytest.raises(WrongBatch, match="cannot be divided among 3"):
            batches.set_share(0, 3)
