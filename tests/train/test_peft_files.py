"""Adapters go to PEFT and come back: its outputs and ours are equal."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import tojax
from tests.tolerance import assert_close
from tojax.errors import BadCheckpoint, Unsupported
from tojax.train import load_adapter, lora, save_adapter

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
IDS = np.arange(12, dtype=np.int32).reshape(2, 6)
KINDS = {
    "llama": (r"q_proj|v_proj", ["q_proj", "v_proj"]),
    "gpt2": (r"c_attn.weight", ["c_attn"]),  # a matrix that is kept transposed
}


def base(kind):
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=32)).eval()
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=16, n_layer=2, n_head=2)).eval()


def logits(module):
    return module(torch.from_numpy(IDS).long()).logits.detach()


def moved(params):
    """Other values, so that nothing is zero."""
    keys = jax.random.split(jax.random.key(1), len(params))
    pairs = zip(sorted(params), keys)
    return {k: params[k] + 0.3 * jax.random.normal(key, params[k].shape) for k, key in pairs}


@pytest.mark.parametrize("kind, dora", [("llama", False), ("llama", True), ("gpt2", False)])
def test_peft_loads_what_is_saved(kind, dora, tmp_path):
    small = lora(tojax.from_torch(base(kind)), 4, KINDS[kind][0], alpha=8, dora=dora)
    small = small.with_params(moved(small.params))
    want = small(IDS).logits
    save_adapter(small, tmp_path)
    theirs = peft.PeftModel.from_pretrained(base(kind), tmp_path).eval()
    assert_close(logits(theirs), want, reduction=256)
    again = load_adapter(tojax.from_torch(base(kind)), tmp_path)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, dict(again.params), dict(small.params)))


@pytest.mark.parametrize("kind, dora", [("llama", False), ("llama", True), ("gpt2", False)])
def test_what_peft_saves_is_loaded(kind, dora, tmp_path):
    config = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=KINDS[kind][1], use_dora=dora, init_lora_weights=False,
        fan_in_fan_out=kind == "gpt2",
    )  # fmt: skip
    theirs = peft.get_peft_model(base(kind), config).eval()
    theirs.save_pretrained(tmp_path)
    small = load_adapter(tojax.from_torch(base(kind)), tmp_path)
    assert_close(small(IDS).logits, logits(theirs), reduction=256)


def test_bad_files(tmp_path):
    model = tojax.from_torch(base("llama"))
    with pytest.raises(BadCheckpoint, match="no adapter"):
        load_adapter(model, tmp_path)
    save_adapter(lora(model, 2, "q_proj"), tmp_path)
    with pytest.raises(BadCheckpoint, match="does not fit"):
        load_adapter(tojax.from_torch(torch.nn.Linear(3, 3)), tmp_path)
    file = tmp_path / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"r": 3}))
    with pytest.raises(BadCheckpoint, match="has shape"):
        load_adapter(model, tmp_path)
    file.write_text(json.dumps(config | {"use_rslora": True}))
    with pytest.raises(Unsupported, match="use_rslora"):
        load_adapter(model, tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    file.write_text(json.dumps(config))
    with pytest.raises(BadCheckpoint, match="can be read"):
        load_adapter(model, tmp_path)


def test_only_adapters_are_saved(tmp_path):
    model = tojax.from_torch(base("llama"))
    with pytest.raises(Unsupported, match="without any"):
        save_adapter(model, tmp_path)
    with pytest.raises(Unsupported, match="norm"):
        save_adapter(lora(model, 2, "q_proj", train="norm.weight"), tmp_path)
