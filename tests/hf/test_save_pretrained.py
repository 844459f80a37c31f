"""What save_pretrained writes is what transformers loads, and a save that fails loses nothing."""

import errno

import jax
import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from tests.models import tiny

pytestmark = pytest.mark.sample(every=2)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    tiny.build("llama")[0].save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"a": 1}')
    (folder / "notes.md").write_text("not for a tokenizer")
    return folder


def trained(model):
    """The model after an update of its params in JAX."""
    return model.with_params(jax.tree.map(lambda x: 0.9 * x + 0.01, model.params))


def logits(module, inputs):
    out = module(**inputs)
    return (out.logits if "logits" in out else out[0]).detach().numpy()


@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "t5", "bert"])
def test_transformers_loads_it(name, loaded, tmp_path):
    module, inputs = tiny.build(name)
    module.save_pretrained(tmp_path / "first")
    model = anyjax.from_pretrained(tmp_path / "first") if loaded else anyjax.from_torch(module)
    model = trained(model)
    model.save_pretrained(tmp_path / "second", max_shard_size="20KB")
    assert (tmp_path / "second" / "model.safetensors.index.json").exists()
    back, told = type(module).from_pretrained(tmp_path / "second", output_loading_info=True)
    assert not any(told.values())
    out = model(**inputs)
    out = out.logits if "logits" in out else out[0]
    assert abs(logits(back.eval(), inputs) - out).max() < 1e-4
    assert abs(logits(model.to_torch(), inputs) - out).max() < 1e-4
    names = sorted(p.name for p in (tmp_path / "first").glob("*.json"))
    assert set(names) <= {p.name for p in (tmp_path / "second").iterdir()}


def test_dtypes_are_those_of_the_params(llama, tmp_path):
    model = anyjax.from_pretrained(llama, dtype="bfloat16")
    wide = model.with_params(jax.tree.map(lambda x: x.astype("float32") + 1e-6, model.params))
    wide.save_pretrained(tmp_path / "wide")
    model.save_pretrained(tmp_path / "small")
    back = anyjax.from_pretrained(tmp_path / "wide").params
    assert all(np.array_equal(back[k], v) for k, v in wide.params.items())
    kept = anyjax.from_pretrained(tmp_path / "small").params
    assert {str(v.dtype) for v in kept.values()} == {"bfloat16"}
    assert all(np.array_equal(kept[k], v) for k, v in model.params.items())


def test_torch_modules_are_their_own(llama):
    model = anyjax.from_pretrained(llama)
    first, second = model.to_torch(), trained(model).to_torch()
    name = "model.layers.0.mlp.up_proj.weight"
    assert np.array_equal(first.get_parameter(name).detach(), model.params[name])
    assert not torch.equal(first.get_parameter(name), second.get_parameter(name))
    assert first.get_parameter(name).requires_grad
    assert model.source.module.get_parameter(name).is_meta
    with torch.no_grad():
        first.get_parameter(name).zero_()
    assert np.any(model.params[name])


def test_tokenizer_files_come_along_and_other_files_stay(llama, tmp_path):
    model, folder = anyjax.from_pretrained(llama), tmp_path / "copy"
    model.save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "tokenizer_config.json").read_text() == '{"a": 1}'
    assert not (folder / "notes.md").exists()
    (folder / "notes.md").write_text("mine")
    (folder / "runs").mkdir()
    (folder / "runs" / "log.txt").write_text("loss")
    model.save_pretrained(folder)
    names = {p.name for p in folder.iterdir()}
    assert {"model.safetensors", "notes.md", "runs", "tokenizer.json"} <= names
    assert not any("-of-" in n or n.endswith("index.json") for n in names)
    assert (folder / "runs" / "log.txt").read_text() == "loss"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space left"), KeyboardInterrupt()])
def test_a_save_that_fails_loses_nothing(error, llama, tmp_path, monkeypatch):
    model, folder = anyjax.from_pretrained(llama), tmp_path / "copy"
    model.save_pretrained(folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    original = PreTrainedModel.save_pretrained

    def half(self, where, **kwargs):
        original(self, where, **kwargs)
        (where / "model.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", half)
    with pytest.raises(type(error)):
        trained(model).save_pretrained(folder)
    with pytest.raises(type(error)):
        model.save_pretrained(tmp_path / "new")
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


def test_what_cannot_be_saved(llama, tmp_path):
    with pytest.raises(Unsupported, match="Linear is no transformers model"):
        anyjax.from_torch(torch.nn.Linear(2, 2)).save_pretrained(tmp_path / "x")
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(WrongArguments, match="holds something else"):
        anyjax.from_pretrained(llama).save_pretrained(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_arrays_on_a_mesh_of_one_device_stay_what_they_are(llama, tmp_path):
    """Saved twice, and used after it."""
    mesh = jax.make_mesh((1,), ("fsdp",), devices=jax.devices()[:1])
    model = anyjax.from_pretrained(llama, mesh=mesh, plan="fsdp")
    for name in ("first", "second"):
        anyjax.save_pretrained(model, tmp_path / name)
        again = anyjax.from_pretrained(tmp_path / name).params
        assert all((np.asarray(again[k]) == np.asarray(v)).all() for k, v in model.params.items())
    assert len(model.params["model.norm.weight"].sharding.device_set) == 1
