import itertools
import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from anyjax.errors import NoData, WrongArguments
from anyjax.train import Batches, Shuffle, numpy_collate
from anyjax.train.data.feed import Position, check_repeatable, feed

pytestmark = pytest.mark.sample(every=2)


def grain_loader():
    grain = pytest.importorskip("grain")
    sampler = grain.samplers.IndexSampler(12, num_epochs=1, shuffle=True, seed=3)
    return grain.DataLoader(
        data_source=np.arange(12), sampler=sampler, operations=[grain.transforms.Batch(3)]
    )


def grain_dataset():
    grain = pytest.importorskip("grain")
    return grain.MapDataset.source(np.arange(12)).shuffle(seed=3).batch(3).to_iter_dataset()


def torch_loader():
    data = np.arange(12)
    return DataLoader(data, 3, sampler=Shuffle(12, 5), collate_fn=numpy_collate)


SOURCES = {
    "list": lambda: [np.full(3, i) for i in range(4)],
    "batches": lambda: Batches(np.arange(12), 3, key=0),
    "torch": torch_loader,
    "grain loader": grain_loader,
    "grain dataset": grain_dataset,
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_position_can_be_returned_to(name):
    """Also from JSON, as checkpoints keep it."""
    make = SOURCES[name]
    whole = list(feed(make(), Position(), 3))
    assert len(whole) == 12
    for at in (0, 3, 6):
        saved = Position.from_json(json.loads(json.dumps(whole[at][0].as_json())))
        rest = [batch.tolist() for _, batch in feed(make(), saved, 3)]
        assert rest == [batch.tolist() for _, batch in whole[at + 1 :]]


@pytest.mark.parametrize("name", ["batches", "torch"])
def test_sources_that_seek_load_nothing_twice(name):
    seen = list(feed(SOURCES[name](), Position(0, 3), 1))
    assert len(seen) == 1


def test_epochs_are_told_to_a_dataset():
    class Epochs(torch.utils.data.IterableDataset):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch, self.epoch])

    loader = DataLoader(Epochs(), 2, collate_fn=numpy_collate)
    assert [b.tolist() for _, b in feed(loader, Position(), 3)] == [[0, 0], [1, 1], [2, 2]]


def test_no_data_is_an_error():
    with pytest.raises(NoData, match="there is no batch"):
        list(feed([], Position(), 1))
    with pytest.raises(NoData, match="the iterator ended after 2 batches"):
        list(feed(iter([1, 2]), Position(), 2))
    endless = feed(itertools.count(), Position(), None)
    assert [b for _, b in itertools.islice(endless, 3)] == [0, 1, 2]


def test_shuffling_that_nothing_repeats_is_refused():
    data = torch.arange(4)
    with pytest.raises(WrongArguments, match="shuffles with RandomSampler"):
        check_repeatable(DataLoader(data, 2, shuffle=True))
    check_repeatable(DataLoader(data, 2))
    check_repeatable([1])
