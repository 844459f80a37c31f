"""A ``model.json`` with entries of other types is one error, when the model is loaded."""

import copy
import json

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import AnyjaxError, BadCheckpoint
from anyjax.saved.metadata import text_of

pytestmark = pytest.mark.sample(every=2)

X = np.ones((4, 3), np.float32)
OTHERS = [None, 3, "x", 2.5, True, [], [3], {}, {"a": 3}, [[]], [None]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "m"
    anyjax.from_torch(torch.nn.Linear(3, 2)).save(folder, X)
    return folder, json.loads((folder / "model.json").read_text())


def outcome(folder, about):
    """What loading and a call give: an error of ours with four lines, or the output."""
    (folder / "model.json").write_text(text_of(about))
    try:
        return anyjax.load(folder)(X)
    except AnyjaxError as error:
        assert len(str(error).splitlines()) in (3, 4)
        return None


def test_entries_of_other_types(saved):
    folder, about = saved
    for name in about:
        for value in OTHERS:
            outcome(folder, about | {name: value})
        outcome(folder, {k: v for k, v in about.items() if k != name})


def test_calls_of_other_types(saved):
    folder, about = saved
    for name in about["calls"][0]:
        for value in OTHERS:
            changed = copy.deepcopy(about)
            changed["calls"][0][name] = value
            outcome(folder, changed)
    for value in OTHERS:
        with pytest.raises(BadCheckpoint):
            (folder / "model.json").write_text(json.dumps(about | {"calls": [value]}))
            anyjax.load(folder)


@pytest.mark.parametrize("name", ["../x", "/etc/hostname", "a/../../b"])
def test_files_in_other_folders(saved, name):
    folder, about = saved
    for changed in ({"sha256": about["sha256"] | {name: ""}}, {"programs": {name: {}}}):
        (folder / "model.json").write_text(json.dumps(about | changed))
        with pytest.raises(BadCheckpoint, match="sha256"):
            anyjax.load(folder)


@pytest.mark.parametrize("content", ["", "[]", "3", "null", "{", "[" * 10**5])
def test_what_is_no_json_of_ours(saved, content):
    folder, _ = saved
    (folder / "model.json").write_text(content)
    with pytest.raises(BadCheckpoint):
        anyjax.load(folder)


def test_entries_that_were_changed(saved):
    folder, about = saved
    (folder / "model.json").write_text(json.dumps(about | {"name": "other"}))
    with pytest.raises(BadCheckpoint, match="their checksum is another one"):
        anyjax.load(folder)
    del about["crc32"]  # as earlier versions wrote it
    (folder / "model.json").write_text(json.dumps(about))
    assert anyjax.load(folder)(X).shape == (4, 2)


@pytest.mark.parametrize("text", ["9^9^9 == 1", "(" * 10**4, "__import__('os') == 1", "a b == 1"])
def test_constraints_that_cannot_be_evaluated(saved, text):
    folder, about = saved
    changed = copy.deepcopy(about)
    changed["calls"][0]["constraints"] = [text]
    (folder / "model.json").write_text(text_of(changed))
    with pytest.raises(BadCheckpoint, match="is no dimension"):
        anyjax.load(folder)
