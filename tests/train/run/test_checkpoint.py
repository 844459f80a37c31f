import os

import jax
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.errors import BadCheckpoint, NotWritten, OtherCheckpoint, WrongValue
from anyjax.train import TrainState, fit, make_step, restore
from anyjax.train.run.checkpoint import Best, Checkpoints
from tests.tolerance import assert_close
from tests.train.nets import begin, mlp, mse, rows, standard, stateful
from tests.train.step.test_training_step import Remembers

pytestmark = pytest.mark.sample(every=2)

TX = optax.adam(1e-2)


def trained(folder, **options):
    options = dict(folder=folder, every=2) | options
    return fit(*begin(), [rows(seed=i) for i in range(7)], **options)


def fresh():
    return begin()[0]


def steps(folder):
    return sorted(int(p.name) for p in (folder / "checkpoints").iterdir())


def test_the_last_ones_stay_and_come_back_whole(tmp_path):
    state = trained(tmp_path, keep=2)
    assert steps(tmp_path) == [6, 7]
    back = restore(tmp_path, fresh())
    assert jax.tree.structure(back) == jax.tree.structure(state)
    assert_close(jax.tree.leaves(back), jax.tree.leaves(state), rtol=0)
    assert int(restore(tmp_path, fresh(), 6).step) == 6


def test_the_best_stays_as_well(tmp_path):
    values = iter([3.0, 1.0, 2.0, 4.0])
    trained(tmp_path, keep=1, keep_best="min eval_x", evaluate=lambda state: {"x": next(values)})
    assert steps(tmp_path) == [4, 7]
    assert int(restore(tmp_path, fresh(), "min eval_x").step) == 4
    assert int(restore(tmp_path, fresh(), "max eval_x").step) == 7


def test_which_is_best_is_known_after_a_resume(tmp_path):
    values = iter([3.0, 1.0, 2.0, 4.0, 5.0, 6.0])
    options = dict(keep=1, keep_best="min eval_x", evaluate=lambda state: {"x": next(values)})
    trained(tmp_path, **options)
    trained(tmp_path, epochs=2, steps=9, **options)
    assert 4 in steps(tmp_path)


def test_another_model_or_optimizer_is_refused(tmp_path):
    trained(tmp_path)
    with pytest.raises(
        OtherCheckpoint, match=r"'0.weight'\]: float32\[8, 4\], here float32\[8, 5\]"
    ):
        wide = mlp(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1), inputs=5)
        restore(tmp_path, stateful(wide, TX)[1])
    with pytest.raises(OtherCheckpoint, match="absent"):
        restore(tmp_path, TrainState.create(standard()[0], optax.sgd(0.1)))


def test_what_code_keeps_in_attributes_comes_back(tmp_path):
    model, step = anyjax.from_torch(Remembers()), make_step(mse, TX)
    options = dict(folder=tmp_path, every=2)
    new = lambda: TrainState.create(model, TX)
    fit(new(), step, [rows()] * 3, **options)
    parts = fit(new(), step, [rows()] * 6, steps=6, **options)
    whole = fit(new(), step, [rows()] * 6)
    assert parts.state.keys() == whole.state.keys() != model.state.keys()
    assert_close(jax.tree.leaves(parts), jax.tree.leaves(whole), rtol=0)


def test_a_folder_without_one(tmp_path):
    with pytest.raises(BadCheckpoint, match="no such checkpoint"):
        restore(tmp_path, fresh())
    trained(tmp_path)
    with pytest.raises(BadCheckpoint, match="no such checkpoint"):
        restore(tmp_path, fresh(), 3)


def test_reading_leaves_alone_what_a_run_writes(tmp_path):
    trained(tmp_path)
    begun = tmp_path / "checkpoints" / "9.orbax-checkpoint-tmp"
    begun.mkdir()
    assert int(restore(tmp_path, fresh()).step) == 7 and begun.exists()
    assert int(restore(tmp_path, fresh(), "min loss").step) in (4, 6, 7) and begun.exists()


def test_a_damaged_one_is_named(tmp_path):
    """Of arrays it is the same error, but Orbax's threads complain for a while after it."""
    trained(tmp_path)
    cut = tmp_path / "checkpoints/7/data/metadata"
    cut.write_bytes(cut.read_bytes()[:-20])
    for read in (lambda: restore(tmp_path, fresh()), lambda: trained(tmp_path)):
        with pytest.raises(BadCheckpoint, match="checkpoint of step 7 cannot be read"):
            read()
    assert int(restore(tmp_path, fresh(), 6).step) == 6


def test_what_is_best_must_be_said_and_known(tmp_path):
    with pytest.raises(WrongValue, match="keep_best='loss'"):
        Best("loss")
    with pytest.raises(WrongValue, match="no metric 'eval_loss'"):
        trained(tmp_path, keep_best="min eval_loss")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotWritten, match="file/checkpoints"):
        trained(tmp_path / "file")


def test_a_read_only_folder_is_named():
    """A folder that not even the superuser may write to."""
    if not os.path.isdir("/sys/kernel"):
        pytest.skip("there is no such folder here")
    with pytest.raises(NotWritten, match="/sys/kernel/checkpoints"):
        trained("/sys/kernel")


def test_what_is_saved_may_be_donated(tmp_path):
    """Writing goes on while the next steps overwrite the state's memory."""
    _, state = stateful(mlp(inputs=4096), TX)
    step, batch, want = make_step(mse, TX), rows(inputs=4096), {}
    with Checkpoints(tmp_path, keep=9) as kept:
        for i in range(1, 4):
            state, _ = step(state, batch)
            want[i] = np.asarray(state.params["0.weight"]).copy()
            kept.save(state, {"position": None})
            state, _ = step(state, batch)
            state = state.replace(step=state.step - 1)
        for i in want:
            np.testing.assert_array_equal(kept.restore(state, i)[0].params["0.weight"], want[i])


@pytest.mark.parametrize("broken", [False, True])
def test_an_interruption_waits_for_what_is_being_written(tmp_path, monkeypatch, broken):
    """It stays what ends the run, whatever the interrupted write says."""

    def stop(step, metrics):
        if step == 5:
            raise KeyboardInterrupt

    finish = Checkpoints.finish

    def failing(self):
        finish(self)
        raise RuntimeError("of what was interrupted")

    if broken:
        monkeypatch.setattr(Checkpoints, "finish", failing)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, log=[stop])
    monkeypatch.undo()
    assert int(restore(tmp_path, fresh()).step) == steps(tmp_path)[-1] == 4
    whole, parts = trained(tmp_path / "whole"), trained(tmp_path)
    assert_close(jax.tree.leaves(parts), jax.tree.leaves(whole), rtol=0)
