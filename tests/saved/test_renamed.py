"""What was written under the package's former name loads: renamed.zip holds a net with BatchNorm
and Dropout after three steps of ``fit``, as ``model.save`` and the run left it, and its values.
"""

import zipfile
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.train import TrainState, fit, make_step


@pytest.fixture
def folder(tmp_path):
    with zipfile.ZipFile(Path(__file__).with_name("renamed.zip")) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_a_saved_model(folder):
    values = np.load(folder / "values.npz")
    model = anyjax.load(folder / "model")
    np.testing.assert_allclose(model(values["x"]), values["y"], rtol=1e-5, atol=1e-6)
    assert {*model.params} == {*values} - {"x", "y"}


def test_a_run_goes_on(folder):
    """Its checkpoint is read, and the next step is taken from there."""
    values = np.load(folder / "values.npz")
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2)
    )
    tx = optax.adam(1e-2)
    step = make_step(lambda model, batch: (model(batch) ** 2).mean(), tx)
    fresh = TrainState.create(anyjax.from_torch(module).train(), tx, rng=jax.random.key(0))
    resumed = fit(fresh, step, [values["x"]] * 3, folder=folder / "run", steps=3)
    assert int(resumed.step) == 3
    for name, array in resumed.model.params.items():
        np.testing.assert_array_equal(array, values[name])
