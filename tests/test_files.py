"""Paths in the user's home, and files that git left something in the place of."""

import shutil

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import BadCheckpoint
from anyjax.files import POINTER, refuse_pointer

DEMO = "examples/tiny-llama"


def test_a_home_is_found_by_every_door(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    model, x = anyjax.from_torch(torch.nn.Linear(3, 2)), np.ones((1, 3), np.float32)
    model.save("~/saved", x)
    np.testing.assert_array_equal(anyjax.load("~/saved")(x), model(x))
    llama = anyjax.from_pretrained(DEMO)
    llama.save_pretrained("~/llama")
    assert anyjax.from_pretrained("~/llama").params.keys() == llama.params.keys()
    anyjax.explore(model, x).to_html("~/page.html")
    found = {path.name for path in tmp_path.iterdir()}
    assert found >= {"saved", "llama", "page.html"}


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "model.onnx"])
def test_pointers(name, tmp_path):
    file = tmp_path / name
    file.write_bytes(POINTER + b".github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(BadCheckpoint, match="pointer of git-lfs"):
        refuse_pointer(file)
    with pytest.raises(BadCheckpoint, match="pointer of git-lfs"):
        anyjax.from_onnx(file) if name == "model.onnx" else anyjax.from_pretrained(tmp_path)


def test_other_names(tmp_path):
    with pytest.raises(BadCheckpoint, match="empty"):
        anyjax.from_pretrained("")
    with pytest.raises(BadCheckpoint, match="'openai/gpt2'"):
        anyjax.from_pretrained("https://huggingface.co/openai/gpt2")
    refuse_pointer(tmp_path / "missing")


def test_a_damaged_generation_config(tmp_path):
    folder = shutil.copytree(DEMO, tmp_path / "llama")
    (folder / "generation_config.json").write_text('{"max_length": ')
    with pytest.raises(BadCheckpoint, match=r"generation_config.json is no JSON"):
        anyjax.from_pretrained(folder)


def test_an_archive_that_unpacks_to_far_more_than_it_is(tmp_path):
    file = tmp_path / "params.npz"
    np.savez_compressed(file, weight=np.zeros((3000, 3000), np.float32))
    with pytest.raises(BadCheckpoint, match="unpacks to far more"):
        anyjax.flax.read_params(file)
    np.savez_compressed(file, weight=np.zeros((30, 30), np.float32))
    assert anyjax.flax.read_params(file)["weight"].shape == (30, 30)
