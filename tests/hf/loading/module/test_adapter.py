"""PEFT adapters on top of checkpoints."""

import json

import jax
import numpy as np
import peft
import pytest
import torch
import transformers

import anyjax
from anyjax.errors import BadCheckpoint

BASE = "examples/tiny-llama"
IDS = np.arange(12)[None]

# peft asks transformers for what it has renamed since
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    torch.manual_seed(0)
    module = transformers.AutoModelForCausalLM.from_pretrained(BASE)
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False
    )
    module = peft.get_peft_model(module, config).eval()
    folder = tmp_path_factory.mktemp("adapter")
    module.save_pretrained(folder)
    with torch.no_grad():
        return folder, module(torch.tensor(IDS)).logits.numpy()


def test_values_and_trainable_params(adapter):
    folder, want = adapter
    model = anyjax.from_pretrained(BASE, adapter=folder)
    np.testing.assert_allclose(model(IDS).logits, want, rtol=1e-4, atol=1e-4)
    assert all("lora_" in name for name in model.params)
    assert len(model.params) == 16
    loss = lambda p: model.apply(p, IDS, labels=IDS).loss
    grads = jax.jit(jax.grad(loss))(model.params)
    assert all(float(abs(g).max()) > 0 for g in grads.values())


def test_the_adapters_folder_is_enough(adapter):
    folder, want = adapter
    model = anyjax.from_pretrained(folder)
    np.testing.assert_allclose(model(IDS).logits, want, rtol=1e-4, atol=1e-4)
    text = anyjax.generate(model, IDS, max_new_tokens=3)
    assert text.shape == (1, 15)


def test_an_adapter_of_another_model_is_refused(adapter, tmp_path):
    from safetensors.numpy import load_file, save_file

    folder, _ = adapter
    weights = load_file(folder / "adapter_model.safetensors")
    name = next(iter(weights))
    config = (folder / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(config)
    save_file(
        weights | {name: np.zeros((4, 7), np.float32)}, tmp_path / "adapter_model.safetensors"
    )
    with pytest.raises(BadCheckpoint, match="does not fit the model"):
        anyjax.from_pretrained(BASE, adapter=tmp_path)
    del weights[name]
    save_file(weights, tmp_path / "adapter_model.safetensors")
    with pytest.raises(BadCheckpoint, match="missing adapter keys"):
        anyjax.from_pretrained(BASE, adapter=tmp_path)


def test_a_folder_without_weights_or_base_is_refused(adapter, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(BadCheckpoint, match="names no base_model_name_or_path"):
        anyjax.from_pretrained(tmp_path)
    with pytest.raises(BadCheckpoint, match=r"has no adapter_model\.safetensors"):
        anyjax.from_pretrained(BASE, adapter=tmp_path)
