"""Every kind of PEFT's adapters: what PEFT computes, or an error that names the kind."""

import json

import jax
import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import anyjax
from anyjax.errors import BadCheckpoint, Unsupported

BASE = "examples/tiny-llama"
IDS = np.arange(12)[None]

pytestmark = [
    pytest.mark.sample(every=2),
    pytest.mark.filterwarnings(
        "ignore:`is_gradient_checkpointing`:FutureWarning",
        "ignore:(Model has|Setting|You are|Some|Unsloth).*:UserWarning",
    ),
]


def lora(**options):
    return peft.LoraConfig(**{"target_modules": ["q_proj"], "init_lora_weights": False} | options)


# (head, options of the base, adapter)
SERVED = {
    "head": ("CausalLM", {}, lora(modules_to_save=["lm_head"])),
    "head and embedding": ("CausalLM", {}, lora(modules_to_save=["lm_head", "embed_tokens"])),
    "norms": ("CausalLM", {}, lora(modules_to_save=["norm"])),
    "classes": ("SequenceClassification", {}, lora(task_type="SEQ_CLS")),
    "five classes": ("SequenceClassification", {"num_labels": 5}, lora(task_type="SEQ_CLS")),
    "tokens": ("TokenClassification", {"num_labels": 3}, lora(task_type="TOKEN_CLS")),
    "embedding": ("CausalLM", {}, lora(target_modules=["embed_tokens", "v_proj"])),
    "dora": ("CausalLM", {}, lora(use_dora=True)),
    "pissa": ("CausalLM", {}, lora(init_lora_weights="pissa")),
    "olora": ("CausalLM", {}, lora(init_lora_weights="olora")),
    "mica": ("CausalLM", {}, lora(init_lora_weights="mica")),
    "some tokens": ("CausalLM", {}, lora(trainable_token_indices=[1, 2])),
    "ia3": ("CausalLM", {}, peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[])),
    "vera": ("CausalLM", {}, peft.VeraConfig(target_modules=["q_proj"])),
}


def written(kind, folder):
    """What PEFT computes with the adapter that it wrote."""
    head, options, config = SERVED[kind]
    torch.manual_seed(0)
    auto = getattr(transformers, f"AutoModelFor{head}")
    module = peft.get_peft_model(auto.from_pretrained(BASE, **options), config).eval()
    for part in module.parameters():
        if part.requires_grad:
            part.data += 0.1 * torch.randn(part.shape)
    module.save_pretrained(folder)
    with torch.no_grad():
        return module(torch.tensor(IDS)).logits


@pytest.mark.parametrize("kind", SERVED)
def test_values_are_those_of_peft(kind, tmp_path):
    want = written(kind, tmp_path)
    model = anyjax.from_pretrained(BASE, adapter=tmp_path)
    np.testing.assert_allclose(model(IDS).logits, want, rtol=1e-4, atol=1e-4)
    slopes = jax.grad(lambda p: model.apply(p, IDS).logits.sum())(model.params)
    assert all(np.isfinite(x).all() for x in slopes.values())
    with torch.no_grad():
        again = model.to_torch()(torch.tensor(IDS)).logits
    np.testing.assert_allclose(again, want, rtol=1e-4, atol=1e-4)


def test_what_is_saved_whole_is_trained_and_the_original_is_not(tmp_path):
    written("head", tmp_path)
    model = anyjax.from_pretrained(BASE, adapter=tmp_path)
    assert "lm_head.modules_to_save.default.weight" in model.params
    assert "lm_head.original_module.weight" not in model.params


def test_a_base_that_lacks_more_than_the_head(tmp_path):
    """Llama's class for answers has other names for all weights: none may be random."""
    auto = transformers.AutoModelForQuestionAnswering
    config = lora(task_type="QUESTION_ANS")
    peft.get_peft_model(auto.from_pretrained(BASE), config).save_pretrained(tmp_path)
    with pytest.raises(BadCheckpoint, match=r"missing +transformer"):
        anyjax.from_pretrained(BASE, adapter=tmp_path)


PROMPTS = {
    "PROMPT_TUNING": lambda **x: peft.PromptTuningConfig(**x),
    "PREFIX_TUNING": lambda **x: peft.PrefixTuningConfig(**x),
    "P_TUNING": lambda **x: peft.PromptEncoderConfig(**x, encoder_hidden_size=8),
}


@pytest.mark.parametrize("kind", PROMPTS)
def test_prompts_are_unsupported_by_name(kind, tmp_path):
    module = transformers.AutoModelForCausalLM.from_pretrained(BASE)
    config = PROMPTS[kind](task_type="CAUSAL_LM", num_virtual_tokens=3)
    peft.get_peft_model(module, config).save_pretrained(tmp_path)
    with pytest.raises(Unsupported, match=f"an adapter of type {kind}"):
        anyjax.from_pretrained(BASE, adapter=tmp_path)
    with pytest.raises(Unsupported, match=f"an adapter of type {kind}"):
        anyjax.train.load_adapter(anyjax.from_torch(module), tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    written("classes", folder)
    return folder


def copied(whole, folder, entries=None, drop=(), more=None):
    config = json.loads((whole / "adapter_config.json").read_text())
    config = config | entries if isinstance(entries, dict) else entries or config
    (folder / "adapter_config.json").write_text(json.dumps(config))
    weights = load_file(whole / "adapter_model.safetensors")
    kept = {k: v for k, v in weights.items() if not any(x in k for x in drop)}
    save_file(kept | (more or {}), folder / "adapter_model.safetensors")
    return folder


NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
DAMAGED = {
    "fewer layers are named": dict(entries={"target_modules": ["0.self_attn.q_proj"]}),
    "others are named": dict(entries={"target_modules": ["k_proj"]}),
    "none are named": dict(entries={"target_modules": ["nothing"]}),
    "a weight too many": dict(more={"base_model.model.surplus": np.ones(2, np.float32)}),
    "a part is missing": dict(drop=["layers.1.self_attn.q_proj.lora_B"]),
    "the head is missing": dict(drop=["score"]),
    "a head of another shape": dict(more={"base_model.model.score.weight": np.ones((2, 3), "f")}),
    "a matrix of another rank": dict(more={NAME: np.ones((3, 128), "f")}),
    "a vector": dict(more={NAME: np.ones(3, "f")}),
    "a scalar": dict(more={NAME: np.ones((), "f")}),
    "rank of a string": dict(entries={"r": "8"}),
    "no rank": dict(entries={"r": None}),
    "targets of numbers": dict(entries={"target_modules": [1, 2]}),
    "alpha of a list": dict(entries={"lora_alpha": [1]}),
    "a task of a list": dict(entries={"task_type": ["SEQ_CLS"]}),
    "modules of numbers": dict(entries={"modules_to_save": [3]}),
    "a type of a number": dict(entries={"peft_type": 3}),
    "no type": dict(entries={"peft_type": None}),
    "a list": dict(entries=[1, 2]),
    "a string": dict(entries="LORA"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_damaged_adapters(how, whole, tmp_path):
    copied(whole, tmp_path, **DAMAGED[how])
    with pytest.raises(BadCheckpoint) as caught:
        anyjax.from_pretrained(BASE, adapter=tmp_path)
    assert len(str(caught.value).replace("\n    ", "; ").splitlines()) == 5


@pytest.mark.parametrize("content", [b"", b"\0" * 8, b"\xff" * 100, b"{}", b"[[["])
@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_files_of_garbage(name, content, whole, tmp_path):
    copied(whole, tmp_path)
    (tmp_path / name).write_bytes(content)
    model = anyjax.from_pretrained(BASE)
    for load in (lambda: anyjax.from_pretrained(BASE, adapter=tmp_path),
                 lambda: anyjax.train.load_adapter(model, tmp_path)):  # fmt: skip
        with pytest.raises(BadCheckpoint) as caught:
            load()
        assert len(str(caught.value).replace("\n    ", "; ").splitlines()) == 5


def test_a_type_that_peft_has_not(whole, tmp_path):
    copied(whole, tmp_path, entries={"peft_type": "NOVEL"})
    with pytest.raises(Unsupported, match="an adapter of type NOVEL"):
        anyjax.from_pretrained(BASE, adapter=tmp_path)
