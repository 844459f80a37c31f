"""Folders that are no checkpoint, and why: each error's text."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import anyjax
from anyjax.errors import BadCheckpoint, HubUnreachable, NewWeights, Unsupported
from anyjax.hf.loading.find.checkpoint import find_checkpoint
from tests.models import tiny


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    module, _ = tiny.build("llama")
    module.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def lines(call, error=BadCheckpoint):
    with pytest.raises(error) as caught:
        call()
    said = str(caught.value).replace("\n    ", "; ").splitlines()  # weights have lines of their own
    assert len(said) == 5, said
    return said


def test_loads(saved):
    module, inputs = tiny.build("llama")
    model = anyjax.from_pretrained(saved)
    assert type(model.source.module) is type(module)
    assert abs(model(**inputs).logits - module(**inputs).logits.detach().numpy()).max() < 1e-4


def test_dtype(saved):
    model = anyjax.from_pretrained(saved, dtype="bfloat16")
    assert {str(v.dtype) for v in model.params.values()} == {"bfloat16"}


def test_task(saved):
    with pytest.warns(NewWeights, match=r"has no score.weight: torch drew them at random") as told:
        model = anyjax.from_pretrained(saved, task="SequenceClassification")
    assert model.source.name == "LlamaForSequenceClassification"
    assert told[0].filename == __file__
    said = lines(lambda: anyjax.from_pretrained(saved, task="Nonsense"), Unsupported)
    assert said[0] == "no head for the task 'Nonsense'"


def test_the_own_head_is_not_drawn(folder):
    file, told = folder / "model.safetensors", {"format": "pt"}
    weights = load_file(file)
    norm = weights.pop("model.norm.weight")
    weights["old_head.weight"] = norm.clone()
    save_file(weights, file, told)
    said = lines(lambda: anyjax.from_pretrained(folder, task="CausalLM"))
    assert said[0].endswith("LlamaForCausalLM: 1 missing; missing    model.norm.weight")
    assert "unexpected old_head.weight" in lines(lambda: anyjax.from_pretrained(folder))[0]
    save_file(weights | {"model.norm.weight": norm}, file, told)
    assert anyjax.from_pretrained(folder, task="CausalLM")(input_ids=np.array([[1, 2]])).logits.size


def test_empty_folder(tmp_path):
    said = lines(lambda: find_checkpoint(tmp_path))
    assert said[0] == f"{tmp_path.name} is no checkpoint: it has no config.json"


def test_no_folder():
    assert lines(lambda: find_checkpoint("./nowhere"))[0] == "./nowhere is no folder"


def test_offline_hub():
    said = lines(lambda: find_checkpoint("someone/some-model"), HubUnreachable)
    assert said[0] == "cannot reach the Hugging Face hub to fetch 'someone/some-model'"
    assert said[2] == "  why:   HF_HUB_OFFLINE=1 forbids it"


def test_config_of_something_else(folder):
    (folder / "config.json").write_text("{not json")
    assert lines(lambda: find_checkpoint(folder))[0] == "config.json is no JSON"
    (folder / "config.json").write_text("{}")
    assert lines(lambda: find_checkpoint(folder))[0] == "config.json names no model_type"


def test_truncated_weights(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    said = lines(lambda: anyjax.from_pretrained(folder))
    assert said[0] == "model.safetensors is no complete safetensors file"
    file.write_bytes(b"garbage")
    assert (
        lines(lambda: anyjax.from_pretrained(folder))[0]
        == "model.safetensors is no complete safetensors file"
    )


def test_pickled_weights_are_refused(folder):
    (folder / "model.safetensors").unlink()
    module, _ = tiny.build("llama")
    torch.save(module.state_dict(), folder / "pytorch_model.bin")
    said = lines(lambda: anyjax.from_pretrained(folder))
    assert said[0] == "the weights are pickled (pytorch_model.bin)"
    assert "allow_pickle=True" in said[3]
    model = anyjax.from_pretrained(folder, allow_pickle=True)
    assert len(model.params) == len(anyjax.from_torch(module).params)


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "has a config.json and no weights" in lines(lambda: find_checkpoint(folder))[0]
    assert find_checkpoint(folder, need_weights=False).weights == []


def test_missing_shard(folder):
    (folder / "model.safetensors").rename(folder / "model-2.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert (
        lines(lambda: find_checkpoint(folder))[0]
        == "1 of 2 weight files are missing: model-1.safetensors"
    )


def test_missing_extra_and_misshaped_weights(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    tensors["model.surplus"] = torch.ones(2)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    said = lines(lambda: anyjax.from_pretrained(folder))
    assert "1 missing, 1 unexpected; missing    model.norm.weight; unexpected" in said[0]
    assert said[0].endswith("model.surplus")
    tensors["model.norm.weight"] = torch.ones(5)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert "model.norm.weight" in " ".join(lines(lambda: anyjax.from_pretrained(folder)))


def test_code_of_its_own_is_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_mine.Mine"}
    (folder / "config.json").write_text(json.dumps(config))
    said = lines(lambda: anyjax.from_pretrained(folder), Unsupported)
    assert "brings model code of its own (modeling_mine.Mine)" in said[0]
