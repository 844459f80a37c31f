"""Folders: whole or not there, read only as they were saved, and nobody else's files."""

import errno
import json
import os
import re

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import BadCheckpoint, NotWritten, Unsupported, WrongArguments, WrongValue
from anyjax.saved import writing
from anyjax.saved.metadata import text_of

pytestmark = pytest.mark.sample(every=2)

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def model():
    return anyjax.from_torch(torch.nn.Linear(3, 2))


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "m", X)
    return tmp_path / "m"


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def change(folder, **entries):
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(text_of(about | entries))


STOPS = [
    KeyboardInterrupt(),
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    MemoryError(),
]


@pytest.mark.parametrize("name", ["export_call", "save_file", "digest"])
@pytest.mark.parametrize("error", STOPS, ids=lambda e: type(e).__name__)
def test_an_interrupted_save_loses_nothing(model, folder, monkeypatch, name, error):
    before = contents(folder)

    def stop(*args, **kwargs):
        raise error

    monkeypatch.setattr(writing, name, stop)
    wanted = NotWritten if isinstance(error, OSError) else type(error)
    with pytest.raises(wanted):
        model.save(folder, X)
    assert [p.name for p in folder.parent.iterdir()] == ["m"]
    assert contents(folder) == before


def test_a_folder_that_is_not_ours(model, tmp_path):
    (tmp_path / "precious.txt").write_text("x")
    with pytest.raises(WrongArguments, match="holds something else"):
        model.save(tmp_path, X)
    (tmp_path / "model.json").write_text('{"modelTopology": {}}')  # of TensorFlow.js
    with pytest.raises(WrongArguments, match=r"its model\.json is not one of model\.save"):
        model.save(tmp_path, X)
    with pytest.raises(BadCheckpoint, match=r"no folder that model\.save wrote"):
        anyjax.load(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.json", "precious.txt"]


def test_a_folder_with_files_beside_ours(model, folder):
    (folder / "notes.txt").write_text("x")
    with pytest.raises(WrongArguments, match=r"a saved model and something else: notes\.txt"):
        model.save(folder, X)
    (folder / "notes.txt").unlink()
    model.save(folder, X)


def test_a_link_stays_one(model, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for x in (X, X[:2]):
        model.save(tmp_path / "link", x)
        assert anyjax.load(tmp_path / "real")(x).shape == (len(x), 2)
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


@pytest.mark.parametrize("name", ["params.safetensors", "state.safetensors", "call-0.jax"])
@pytest.mark.parametrize("how", ["changed", "truncated", "missing"])
def test_files_that_are_not_as_saved(tmp_path, name, how):
    anyjax.from_torch(torch.nn.BatchNorm1d(3).eval()).save(tmp_path / "m", X)
    file = tmp_path / "m" / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.unlink()
    if how != "missing":
        file.write_bytes(content if how == "changed" else content[: len(content) // 2])
    said = "missing" if how == "missing" else "damaged"
    with pytest.raises(BadCheckpoint, match=rf"{re.escape(name)} is {said}"):
        anyjax.load(tmp_path / "m")


def test_what_is_no_folder(tmp_path, folder):
    for place in (tmp_path, tmp_path / "none", folder / "model.json"):
        with pytest.raises(BadCheckpoint, match=r"no folder that model\.save wrote"):
            anyjax.load(place)
    for entries in ({"sha256": []}, {"calls": None}, {"platforms": []}):
        whole = (folder / "model.json").read_text()
        change(folder, **entries)
        with pytest.raises(BadCheckpoint, match=r"no folder that model\.save wrote"):
            anyjax.load(folder)
        (folder / "model.json").write_text(whole)
    (folder / "model.json").write_text((folder / "model.json").read_text()[:-20])
    with pytest.raises(BadCheckpoint, match=r"no folder that model\.save wrote"):
        anyjax.load(folder)


@pytest.mark.parametrize("number", [3, 99])
def test_another_format_is_refused(folder, number):
    change(folder, format=number)
    with pytest.raises(BadCheckpoint, match=f"has format {number}"):
        anyjax.load(folder)


def test_a_program_for_a_newer_jax(folder, monkeypatch):
    change(folder, jax="99.1.0")
    anyjax.load(folder)  # what was saved is still read
    with monkeypatch.context() as patch:
        patch.setattr(jax.export, "maximum_supported_calling_convention_version", 1)
        with pytest.raises(BadCheckpoint, match=r"a program of JAX 99\.1\.0.*\n.*convention"):
            anyjax.load(folder)


@pytest.mark.parametrize("error", [NotImplementedError("version 9"), ValueError("StableHLO 9")])
def test_a_program_that_jax_cannot_read(folder, monkeypatch, error):
    change(folder, jax="99.1.0")

    def fail(*args):
        raise error

    of_file = isinstance(error, NotImplementedError)
    owner = jax.export if of_file else jax.export.Exported
    monkeypatch.setattr(owner, "deserialize" if of_file else "mlir_module", fail)
    with pytest.raises(BadCheckpoint, match=r"(?s)a program of JAX 99\.1\.0.*jax>=99\.1\.0"):
        anyjax.load(folder)


def test_platforms(model, tmp_path):
    model.save(tmp_path / "two", X, platforms=("cpu", "tpu"))
    assert anyjax.load(tmp_path / "two")(X).shape == (4, 2)
    model.save(tmp_path / "other", X, platforms=("tpu", "cuda"))
    with pytest.raises(Unsupported, match="was saved for tpu, cuda, JAX runs on cpu"):
        anyjax.load(tmp_path / "other")
    for wrong in ("cpu", (), ("cpu", "abacus")):
        with pytest.raises(WrongValue, match="platforms="):
            model.save(tmp_path / "none", X, platforms=wrong)


def test_an_operator_with_a_lowering_for_each_platform(tmp_path):
    """A depthwise convolution is a sum on CPUs and XLA's own convolution elsewhere."""
    conv = torch.nn.Conv1d(4, 4, 3, groups=4)
    model = anyjax.from_torch(conv)
    x = np.linspace(-1, 1, 32, dtype="f").reshape(1, 4, 8)
    model.save(tmp_path / "conv", x)
    back = anyjax.load(tmp_path / "conv")
    assert "stablehlo.convolution" in back.source.programs[0].mlir_module()
    assert "stablehlo.case" in back.source.programs[0].mlir_module()
    np.testing.assert_array_equal(back(x), model(x))
    loss = lambda m: lambda p: m.apply(p, x).sum()
    got, want = (jax.grad(loss(m))(m.params)["weight"] for m in (back, model))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_convert_loads_it_and_refuses_two_models_in_one_folder(model, folder):
    np.testing.assert_array_equal(anyjax.convert(folder)(X), model(X))
    (folder / "config.json").write_text("{}")
    with pytest.raises(WrongArguments, match=r"holds config\.json and model\.json"):
        anyjax.convert(folder)
