import json

import jax
import numpy as np
import optax
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec

import anyjax
from anyjax.errors import NoData, WrongArguments, WrongBatch
from anyjax.train import Batches, TrainState, evaluate, fit, make_step, numpy_collate, restore
from tests.tolerance import assert_close
from tests.train.nets import begin, mlp, mse, rows


def batches(count=24):
    return Batches(rows(count), 4, key=0)


def lines(folder):
    return [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_in_parts_is_the_run_in_one(tmp_path):
    whole = fit(*begin(), batches(), folder=tmp_path / "one", epochs=4, every=5)
    for steps in (3, 11, 12, 24):
        parts = fit(*begin(), batches(), folder=tmp_path / "parts", epochs=4, steps=steps, every=5)
    assert int(parts.step) == int(whole.step) == 24
    assert_close(jax.tree.leaves(parts), jax.tree.leaves(whole), rtol=0)
    texts = [(tmp_path / x / "metrics.jsonl").read_text() for x in ("one", "parts")]
    assert texts[0] == texts[1] and len(texts[0].splitlines()) == 24


def test_prefetch_changes_nothing(tmp_path):
    results = [fit(*begin(), batches(), epochs=2, prefetch=n) for n in (0, 5)]
    assert_close(*map(jax.tree.leaves, results), rtol=0)


def test_metrics_are_written_by_step(tmp_path):
    data = batches()
    found = lambda state: evaluate(state, data, mse)
    fit(*begin(), data, folder=tmp_path, steps=5, every=2, evaluate=found)
    written = lines(tmp_path)
    assert [x["step"] for x in written] == [1, 2, 2, 3, 4, 4, 5, 5]
    assert [set(x) for x in written[1:3]] == [{"step", "loss", "grad_norm"}, {"step", "eval_loss"}]


def test_it_stops_without_a_new_best_and_stays_stopped(tmp_path):
    values = iter([5.0, 4.0, 4.5, 4.2, 9.0])
    options = dict(folder=tmp_path, every=2, steps=100, early_stop=2, keep_best="min eval_x")
    state = fit(*begin(), batches(), evaluate=lambda state: {"x": next(values)}, **options)
    assert int(state.step) == 8
    again = fit(*begin(), batches(), evaluate=lambda state: {"x": next(values)}, **options)
    assert int(again.step) == 8 and next(values) == 9.0


def test_it_stops_where_the_data_does():
    assert int(fit(*begin(), iter([rows()] * 3)).step) == 3
    assert int(fit(*begin(), iter([rows()] * 3), steps=3).step) == 3
    with pytest.raises(NoData, match="the iterator ended after 3 batches"):
        fit(*begin(), iter([rows()] * 3), steps=4)
    assert int(fit(*begin(), [rows()] * 3, epochs=2).step) == 6
    assert int(fit(*begin(), [rows()] * 3, steps=7).step) == 7


def test_on_a_mesh_and_from_there_to_one_device(tmp_path):
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    state, step = begin()
    everywhere, over = (NamedSharding(mesh, PartitionSpec(*a)) for a in ((), ("data",)))
    state, before = jax.device_put(state, everywhere), step.compilations
    wide = fit(state, step, batches(), sharding=over, folder=tmp_path, steps=3)
    alone = restore(tmp_path, begin()[0])
    assert len(wide.step.sharding.device_set) == 4 and step.compilations == before + 1
    assert len(alone.step.sharding.device_set) == 1
    want = fit(*begin(), batches(), steps=3)
    # Adam's first steps are as large where a gradient is rounding alone, as before BatchNorm
    names = [name for name in want.params if name != "0.bias"]
    assert_close(*({k: x.params[k] for k in names} for x in (alone, want)), rtol=1e-4)


def test_bad_input_is_told():
    with pytest.raises(NoData, match="there is no batch"):
        fit(*begin(), [])
    with pytest.raises(WrongBatch, match="of another kind"):
        fit(*begin(), [rows(), (rows()[0].astype(np.int32), rows()[1])])
    with pytest.raises(WrongArguments, match="early_stop without keep_best"):
        fit(*begin(), [rows()], early_stop=3)


def test_orders_that_nothing_repeats_are_refused_in_a_folder(tmp_path):
    data = torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8, 2))
    loader = torch.utils.data.DataLoader(data, 4, shuffle=True, collate_fn=numpy_collate)
    assert int(fit(*begin(), loader).step) == 2
    with pytest.raises(WrongArguments, match="RandomSampler"):
        fit(*begin(), loader, folder=tmp_path)


def test_it_says_once_that_it_compiles(capsys):
    """A step that is compiled already, and a run that is over, say nothing."""
    step = make_step(mse, optax.sgd(0.1))
    state = TrainState.create(anyjax.from_torch(mlp()), step.tx)
    told = []
    for options in ({"steps": 0}, {"progress": False, "steps": 0}, {"steps": 3}, {"steps": 6}):
        state = fit(state, step, batches(), **options)
        told.append(capsys.readouterr().err.count("compiling: "))
    assert told == [0, 0, 1, 0]
