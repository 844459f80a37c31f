"""What saves that were killed leave behind: gone with the next save, and nothing else with it."""

import numpy as np
import pytest
import torch

import anyjax
from anyjax.saved import scratch

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)

pytestmark = pytest.mark.skipif(scratch.fcntl is None, reason="no locks on folders there")


@pytest.fixture
def model():
    return anyjax.from_torch(torch.nn.Linear(3, 2))


def listed(folder):
    return sorted(p.name for p in folder.iterdir())


def test_what_was_put_aside_comes_back(model, tmp_path):
    """Killed between the two renames: the old one is the only model there is."""
    model.save(tmp_path / "m", X)
    new, old = scratch.scratch_names(tmp_path / "m")
    (tmp_path / "m").rename(old)
    new.mkdir()
    scratch.sweep(tmp_path / "m")
    assert listed(tmp_path) == ["m"]
    assert anyjax.load(tmp_path / "m")(X).shape == (4, 2)


def test_an_old_one_beside_the_new(model, tmp_path):
    model.save(tmp_path / "m", X)
    _, old = scratch.scratch_names(tmp_path / "m")
    old.mkdir()
    scratch.sweep(tmp_path / "m")
    assert listed(tmp_path) == ["m"]


def test_an_old_one_whose_save_goes_on(tmp_path):
    new, old = scratch.scratch_names(tmp_path / "m")
    old.mkdir()
    with scratch.new_folder(new):
        scratch.sweep(tmp_path / "m")
        assert listed(tmp_path) == sorted([new.name, old.name])
    scratch.sweep(tmp_path / "m")
    assert listed(tmp_path) == ["m"]


def test_nothing_else_is_touched(model, tmp_path):
    machine = scratch.MACHINE
    others = [
        ".m-mine", ".m-12345678-new", f".m-1234567-{machine}-new", f".mm-12345678-{machine}-new",
        f"m-12345678-{machine}-new", ".m-12345678-zzzzzz-new", f".m-12345678-{machine}-new-made",
    ]  # fmt: skip
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / f".m-87654321-{machine}-new").write_text("a file")
    (tmp_path / f".m-77654321-{machine}-new").symlink_to(tmp_path / ".m-mine")
    before = listed(tmp_path)
    model.save(tmp_path / "m", X)
    assert listed(tmp_path) == sorted([*before, "m"])
