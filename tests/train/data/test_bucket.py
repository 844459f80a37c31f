import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.errors import WrongBatch, WrongValue
from anyjax.train import TrainState, bucket, fit, make_step


def samples(lengths):
    return [{"ids": np.arange(1, n + 1), "label": n % 2} for n in lengths]


def test_compilations_are_bounded_by_the_sizes():
    torch.manual_seed(0)
    model, tx = anyjax.from_torch(torch.nn.Embedding(40, 3)), optax.sgd(0.1)

    def loss(model, batch):
        return jnp.where(batch["mask"][..., None], model(batch["ids"]), 0).sum()

    lengths = np.random.default_rng(0).integers(1, 33, (12, 2))
    collate = bucket([8, 16, 32], mask="mask", ids=0)
    step = make_step(loss, tx)
    batches = [collate(samples(pair)) for pair in lengths]
    fit(TrainState.create(model, tx), step, batches)
    assert step.compilations == len(collate.shapes) <= 3
    assert sum(collate.shapes.values()) == 12
    for pair, batch in zip(lengths, batches):
        np.testing.assert_array_equal(batch["mask"].sum(1), pair)
        assert batch["ids"].shape[1] in (8, 16, 32) and batch["label"].shape == (2,)


def test_an_empty_list_is_of_the_others_kind():
    batch = bucket([2], mask="mask", ids=0, x=-1)([{"ids": [], "x": []}, {"ids": [3], "x": [0.5]}])
    assert batch["ids"].dtype == np.int64 and batch["ids"].tolist() == [[0, 0], [3, 0]]
    assert batch["x"].tolist() == [[-1, -1], [0.5, -1]] and not batch["mask"][0].any()


def test_more_axes_and_all_entries():
    collate = bucket([4])
    batch = collate([{"x": np.ones((n, 2)), "y": np.ones(n), "z": 1} for n in (1, 3)])
    assert batch["x"].shape == (2, 4, 2) and batch["x"][0].sum() == 2
    assert batch["y"].sum() == 4 and batch["z"].tolist() == [1, 1]


def test_what_does_not_fit_is_refused():
    with pytest.raises(WrongBatch, match="a sample of length 9"):
        bucket([4, 8], ids=0)(samples([9]))
    with pytest.raises(WrongBatch, match="samples have no labels"):
        bucket([4], labels=0)(samples([2]))
    with pytest.raises(WrongValue, match=r"sizes=\[\]"):
        bucket([])
