"""Checkpoints that transformers 4 wrote in Flax, built here in their layout."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import torch
import transformers
from flax import serialization, traverse_util

import anyjax
from anyjax.errors import BadCheckpoint, NewWeights
from tests.models import tiny
from tests.tolerance import assert_close

KERNELS = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d)


def in_flax(module):
    """The weights as Flax's class of the same name had them."""
    modules, tied, flat = dict(module.named_modules()), set(), {}
    for name, value in module.named_parameters(remove_duplicate=False):
        path, _, leaf = name.rpartition(".")
        if id(value) in tied:  # a head that reads the embedding has no kernel
            continue
        tied.add(id(value))
        layer, array = modules[path], value.detach().numpy()
        if leaf == "weight" and isinstance(layer, KERNELS):
            leaf, array = "kernel", array.transpose(*range(2, array.ndim), 1, 0)
        elif leaf == "weight" and type(layer).__name__ == "Conv1D":  # has torch's linear layout
            leaf, array = "kernel", array.T
        elif leaf == "weight" and isinstance(layer, torch.nn.Embedding):
            leaf = "embedding"
        elif leaf == "weight" and isinstance(layer, torch.nn.LayerNorm):
            leaf = "scale"
        flat[(*path.split("."), leaf) if path else (leaf,)] = np.array(array, order="C")
    return traverse_util.unflatten_dict(flat)


def written(folder, module, tree):
    module.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [type(module).__name__]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "flax_model.msgpack").write_bytes(serialization.msgpack_serialize(tree))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "clip", "whisper"])
def test_a_flax_checkpoint_loads_as_it_is(name, tmp_path):
    module, inputs = tiny.build(name)
    written(tmp_path, module, in_flax(module))
    model = anyjax.from_pretrained(tmp_path)
    for key, value in module.named_parameters():
        np.testing.assert_array_equal(model.params[key], value.detach().numpy())
    inputs = {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    ours = model(**inputs)
    with torch.no_grad():
        theirs = module(**{k: torch.as_tensor(v) for k, v in inputs.items()})
    key = "logits" if "logits" in theirs else "logits_per_image"
    assert_close(np.asarray(ours[key]), theirs[key].numpy(), reduction=2048)


def test_another_head_in_bfloat16(tmp_path):
    module, _ = tiny.build("bert")
    tree = in_flax(module.bfloat16().float())
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), tree["bert"])
    written(tmp_path, module, {"params": {"bert": half}})
    with pytest.warns(NewWeights, match=r"pooler.dense.bias, pooler.dense.weight:"):
        model = anyjax.from_pretrained(tmp_path, task="Base", dtype="float32")
    name = "encoder.layer.0.output.dense.weight"
    want = module.bert.get_parameter(name).detach().float().numpy()
    np.testing.assert_array_equal(model.params[name], want)


def test_shards(tmp_path):
    module, _ = tiny.build("bert")
    tree = in_flax(module)
    written(tmp_path, module, {})
    (tmp_path / "flax_model.msgpack").unlink()
    parts, weight_map = {"a": {"bert": tree.pop("bert")}, "b": tree}, {}
    for shard, part in parts.items():
        (tmp_path / f"{shard}.msgpack").write_bytes(serialization.msgpack_serialize(part))
        names = traverse_util.flatten_dict(part, sep="/")
        weight_map |= dict.fromkeys(names, f"{shard}.msgpack")
    index = tmp_path / "flax_model.msgpack.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    model = anyjax.from_pretrained(tmp_path)
    assert set(model.params) == {k for k, _ in module.named_parameters()}


def test_missing_and_damaged_weights(tmp_path):
    module, _ = tiny.build("bert")
    tree = in_flax(module)
    del tree["bert"]["encoder"]["layer"]["0"]["output"]
    written(tmp_path, module, tree)
    with pytest.raises(BadCheckpoint, match=r"missing +bert.encoder.layer.0.output"):
        anyjax.from_pretrained(tmp_path)
    file = tmp_path / "flax_model.msgpack"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(BadCheckpoint, match=r"flax_model.msgpack cannot be read"):
        anyjax.from_pretrained(tmp_path)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_an_adapter_with_more_classes_than_the_config(tmp_path):
    config = tiny.build("bert")[0].config
    module = transformers.BertModel(config).eval()
    written(tmp_path, module, in_flax(module))
    config.num_labels = 3
    whole = transformers.BertForSequenceClassification(config)
    whole.bert.load_state_dict(module.state_dict())
    lora = peft.LoraConfig(r=2, task_type="SEQ_CLS", target_modules=["query"])
    adapted = peft.get_peft_model(whole, lora).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    model, ids = anyjax.from_pretrained(tmp_path, adapter=tmp_path / "adapter"), tiny.ids(6)
    with torch.no_grad():
        want = adapted(input_ids=ids).logits.numpy()
    assert_close(np.asarray(model(input_ids=ids.numpy()).logits), want, reduction=2048)
