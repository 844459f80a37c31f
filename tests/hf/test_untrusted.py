"""Checkpoints of others: what their files name and say is looked at before it is followed."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import anyjax
from anyjax.errors import BadCheckpoint
from tests.models import tiny

pytestmark = pytest.mark.sample(every=2)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    tiny.build("llama")[0].save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def assert_refused(call):
    with pytest.raises(BadCheckpoint) as caught:
        call()
    said = str(caught.value).replace("\n    ", "; ").splitlines()
    assert len(said) == 5, said
    return said[0]


def change(folder, **entries):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def indexed(folder, name):
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as opened:
        told = {"metadata": {}, "weight_map": dict.fromkeys(opened.keys(), name)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(told))
    return folder / "model.safetensors"


OUTSIDE = [
    "../outside.safetensors",
    "{outside}",
    "sub/../../outside.safetensors",
    "..",
    "",
    3,
    None,
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_weights_outside_of_the_folder(folder, name):
    outside = folder.parent / "outside.safetensors"
    name = name.format(outside=outside) if isinstance(name, str) else name
    indexed(folder, name).rename(outside)
    (folder / "sub").mkdir()
    assert "as a file of the weights" in assert_refused(lambda: anyjax.from_pretrained(folder))
    (folder / "model.safetensors.index.json").unlink()
    if name:
        change(folder, transformers_weights=name)
        assert "as a file of the weights" in assert_refused(lambda: anyjax.from_pretrained(folder))


def test_pickles_outside_of_the_folder(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    told = {"weight_map": {"a": "../outside.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(told))
    said = assert_refused(lambda: anyjax.from_pretrained(folder, allow_pickle=True))
    assert "as a file of the weights" in said


def test_links_of_the_hubs_cache(folder):
    """A snapshot is a folder of links to ../../blobs."""
    snapshot, blobs = folder.parent / "snapshots" / "one", folder.parent / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    indexed(folder, "model-1.safetensors").rename(folder / "model-1.safetensors")
    for i, file in enumerate(sorted(folder.iterdir())):
        file.rename(blobs / str(i))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(i))
    assert anyjax.from_pretrained(snapshot).params


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
@pytest.mark.parametrize("how", ["pipe", "folder"])
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "generation_config.json",
             "model.safetensors.index.json", "model-1.safetensors"]
)  # fmt: skip
def test_what_is_no_file(folder, name, how):
    if "-1" in name or "index" in name:
        indexed(folder, "model-1.safetensors").rename(folder / "model-1.safetensors")
    (folder / name).unlink()
    os.mkfifo(folder / name) if how == "pipe" else (folder / name).mkdir()
    assert assert_refused(lambda: anyjax.from_pretrained(folder)) == f"{name} is no regular file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_adapters_that_are_no_files(folder, tmp_path, name):
    model = anyjax.from_pretrained(folder)
    adapter = tmp_path / "adapter"
    anyjax.train.save_adapter(anyjax.train.lora(model, 2, "q_proj"), adapter)
    (adapter / name).unlink()
    os.mkfifo(adapter / name)
    assert "no regular file" in assert_refused(
        lambda: anyjax.from_pretrained(folder, adapter=adapter)
    )
    with pytest.raises(BadCheckpoint, match="no regular file"):
        anyjax.train.load_adapter(model, adapter)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
def test_a_saved_model_that_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "model.json")
    with pytest.raises(BadCheckpoint):
        anyjax.load(tmp_path)


def test_more_layers_than_weights(folder):
    start = time.monotonic()
    change(folder, num_hidden_layers=10**7)
    assert "num_hidden_layers = 10000000" in assert_refused(lambda: anyjax.from_pretrained(folder))
    assert time.monotonic() - start < 5
    change(folder, num_hidden_layers=40)
    assert "missing" in assert_refused(lambda: anyjax.from_pretrained(folder))


WRONG = {
    "architectures": [[2], 2, "LlamaForCausalLM", {"a": 1}, [None], [["x"]], ["os"], ["__file__"],
                      ["logging"], ["LlamaConfig"], ["AutoTokenizer"], [""]],
    "model_type": [2, None, [], {}, ["llama"]],
    "hidden_size": ["32", None, [], 3.5, {}],
    "num_hidden_layers": ["2", None, [2], 2.5],
    "auto_map": [[1], "x", 3, {"AutoModel": 3}],
    "quantization_config": [3, "gptq", [1], {"quant_method": 3}, {"quant_method": ["gptq"]}],
    "transformers_weights": [3, [1], {"a": 1}],
    "transformers_version": [3, [1], {}],
    "rope_parameters": [3, "x", [1]],
    "dtype": [3, "nonsense", [1], "save"],
    "text_config": [3, "x"],
    "vocab_size": ["x", [1], {}],
}  # fmt: skip


@pytest.mark.parametrize("name, value", [(k, v) for k, values in WRONG.items() for v in values])
def test_configs_with_entries_of_other_types(folder, name, value):
    """One error of ours, or the model: some entries are not looked at, or have a default."""
    change(folder, **{name: value})
    try:
        model = anyjax.from_pretrained(folder)
    except anyjax.errors.AnyjaxError as error:
        assert len(str(error).replace("\n    ", "; ").splitlines()) == 5
    else:
        assert "model.norm.weight" in model.params or "norm.weight" in model.params


@pytest.mark.parametrize("content", ["[]", "3", "null", '"x"', "[" * 10**5, "", "{", "\ufeff{}"])
def test_configs_that_are_something_else(folder, content):
    (folder / "config.json").write_text(content)
    assert "config.json" in assert_refused(lambda: anyjax.from_pretrained(folder))


@pytest.mark.parametrize(
    "content", ["[]", "3", "null", "{}", "{", '{"weight_map": 3}', '{"weight_map": {}}']
)
def test_an_index_that_is_something_else(folder, content):
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    (folder / "model.safetensors.index.json").write_text(content)
    assert_refused(lambda: anyjax.from_pretrained(folder))


HEADERS = [
    {"a": 3}, {"a": {}}, {"a": {"dtype": "F32", "shape": [1]}}, [], 3, None, {"a": None},
    {"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}},
    {"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}},
    {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
    {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}},
    {"a": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}},
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS, ids=str)
def test_headers_of_weights(folder, header):
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + b"\0" * 4
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(anyjax.errors.AnyjaxError):
        anyjax.from_pretrained(folder)
