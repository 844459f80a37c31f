"""Adapters go to PEFT and come back: its outputs and ours are equal."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import anyjax
from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.train import load_adapter, lora, save_adapter
from tests.tolerance import assert_close

peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.sample(every=2),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]
IDS = np.arange(12, dtype=np.int32).reshape(2, 6)
KINDS = {
    "llama": (r"q_proj|v_proj", ["q_proj", "v_proj"]),
    # matrices that are kept transposed, with more columns than rows, as many, and fewer
    "gpt2": (r"c_attn.weight", ["c_attn"]),
    "gpt2 square": (r"attn.c_proj.weight", ["attn.c_proj"]),
    "gpt2 rows": (r"mlp.c_proj.weight|c_fc.weight", ["mlp.c_proj", "c_fc"]),
    "embedding": (r"wte.weight|wpe.weight|c_attn.weight", ["wte", "wpe", "c_attn"]),
}


ALL = [(kind, dora) for kind in KINDS for dora in (False, True)]


def base(kind, **more):
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=32)).eval()
    sizes = {"vocab_size": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    sizes |= {"tie_word_embeddings": kind != "embedding"}
    return GPT2LMHeadModel(GPT2Config(**sizes, **more)).eval()


def logits(module):
    return module(torch.from_numpy(IDS).long()).logits.detach()


def moved(params):
    """Other values, so that nothing is zero."""
    keys = jax.random.split(jax.random.key(1), len(params))
    pairs = zip(sorted(params), keys)
    return {k: params[k] + 0.3 * jax.random.normal(key, params[k].shape) for k, key in pairs}


@pytest.mark.parametrize("kind, dora", ALL)
def test_peft_loads_what_is_saved(kind, dora, tmp_path):
    small = lora(anyjax.from_torch(base(kind)), 4, KINDS[kind][0], alpha=8, dora=dora)
    small = small.with_params(moved(small.params))
    want = small(IDS).logits
    save_adapter(small, tmp_path)
    theirs = peft.PeftModel.from_pretrained(base(kind), tmp_path).eval()
    assert_close(logits(theirs), want, reduction=256)
    again = load_adapter(anyjax.from_torch(base(kind)), tmp_path)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, dict(again.params), dict(small.params)))


@pytest.mark.parametrize("kind, dora", ALL)
def test_what_peft_saves_is_loaded(kind, dora, tmp_path):
    config = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=KINDS[kind][1], use_dora=dora, init_lora_weights=False,
        fan_in_fan_out=kind != "llama",
    )  # fmt: skip
    theirs = peft.get_peft_model(base(kind), config).eval()
    for part in theirs.parameters():  # lengths as they are after training, too
        if part.requires_grad:
            part.data += 0.1 * torch.randn(part.shape)
    theirs.save_pretrained(tmp_path)
    small = load_adapter(anyjax.from_torch(base(kind)), tmp_path)
    assert_close(small(IDS).logits, logits(theirs), reduction=256)


def test_bad_files(tmp_path):
    model = anyjax.from_torch(base("llama"))
    with pytest.raises(BadCheckpoint, match="no adapter"):
        load_adapter(model, tmp_path)
    save_adapter(lora(model, 2, "q_proj"), tmp_path)
    with pytest.raises(BadCheckpoint, match="does not fit"):
        load_adapter(anyjax.from_torch(torch.nn.Linear(3, 3)), tmp_path)
    file = tmp_path / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"r": 3}))
    with pytest.raises(BadCheckpoint, match="has shape"):
        load_adapter(model, tmp_path)
    file.write_text(json.dumps(config | {"init_lora_weights": "pissa"}))
    with pytest.raises(Unsupported, match="init_lora_weights"):
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
    model = anyjax.from_torch(base("llama"))
    with pytest.raises(Unsupported, match="without any"):
        save_adapter(model, tmp_path)
    with pytest.raises(Unsupported, match="norm"):
        save_adapter(lora(model, 2, "q_proj", train="norm.weight"), tmp_path)


def peft_files(tmp_path, kind="llama", dora=False, **options):
    """(model, what PEFT computes with the adapter that it wrote)."""
    config = peft.LoraConfig(
        r=4, lora_alpha=6, use_dora=dora, init_lora_weights=False,
        fan_in_fan_out=kind != "llama", **{"target_modules": KINDS[kind][1]} | options,
    )  # fmt: skip
    theirs = peft.get_peft_model(base(kind), config).eval()
    theirs.save_pretrained(tmp_path)
    return anyjax.from_torch(base(kind)), theirs


def rewrite(folder, **entries):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


@pytest.mark.parametrize(
    "targets",
    [
        ["q_proj"],
        ["0.self_attn.q_proj", "v_proj"],
        r".*q_proj",
        ["q_proj", "v_proj", "k_proj"],
        r".*(q|k|v)_proj",
    ],
)
def test_a_config_that_names_other_layers_than_the_file(tmp_path, targets):
    model, _ = peft_files(tmp_path)
    rewrite(tmp_path, target_modules=targets)
    more = "k" in str(targets)
    with pytest.raises(BadCheckpoint, match="no weights for" if more else "has weights for"):
        load_adapter(model, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": r".*\.(q|v)_proj"},
        {"layers_to_transform": [1]},
        {"exclude_modules": ["0.self_attn.v_proj"]},
        {"target_modules": "all-linear"},
    ],
)
def test_every_way_to_name_layers(tmp_path, options):
    model, theirs = peft_files(tmp_path, **options)
    small = load_adapter(model, tmp_path)
    assert_close(small(IDS).logits, logits(theirs), reduction=256)


@pytest.mark.parametrize("lost", ["lora_A", "lora_B", "lora_magnitude_vector", "q_proj"])
def test_a_part_that_the_file_lacks(tmp_path, lost):
    model, _ = peft_files(tmp_path, dora=True)
    file = tmp_path / "adapter_model.safetensors"
    kept = load_file(file)
    save_file({k: v for k, v in kept.items() if "layers.1" not in k or lost not in k}, file)
    with pytest.raises(BadCheckpoint, match="has no"):
        load_adapter(model, tmp_path)
    save_file(kept | {"base_model.model.lm_head.surplus": np.ones(2, np.float32)}, file)
    with pytest.raises(BadCheckpoint, match="surplus"):
        load_adapter(model, tmp_path)
    save_file(kept, file)
    rewrite(tmp_path, use_dora=False)
    with pytest.raises(BadCheckpoint, match="lora_magnitude_vector"):
        load_adapter(model, tmp_path)


def test_modules_that_are_saved_whole(tmp_path):
    model, theirs = peft_files(tmp_path, modules_to_save=["lm_head", "norm"])
    for name, part in theirs.named_parameters():
        if "modules_to_save" in name:
            part.data += torch.randn(part.shape)
    theirs.save_pretrained(tmp_path)
    small = load_adapter(model, tmp_path)
    assert {"lm_head.weight", "model.norm.weight"} < {*small.params}
    assert_close(small(IDS).logits, logits(theirs), reduction=256)


@pytest.mark.filterwarnings("ignore:(Model has|Setting|fan_in).*:UserWarning")
def test_a_weight_that_two_layers_share(tmp_path):
    """PEFT adapts one of them."""
    for name in ("lm_head", "wte"):
        model, _ = peft_files(tmp_path / name, "gpt2", target_modules=[name, "c_attn"])
        with pytest.raises(Unsupported, match="has the same weight"):
            load_adapter(model, tmp_path / name)
        model, _ = peft_files(tmp_path / name, "gpt2", modules_to_save=[name])
        with pytest.raises(Unsupported, match="has the same weight"):
            load_adapter(model, tmp_path / name)
    with pytest.raises(Unsupported, match="has the same weight"):
        save_adapter(lora(model, 2, "wte"), tmp_path)


@pytest.mark.filterwarnings("ignore:Setting .save_embedding_layers:UserWarning")
@pytest.mark.parametrize("name", ["embed_tokens", "q_proj"])
def test_an_embedding_that_the_file_holds_too(tmp_path, name):
    model, theirs = peft_files(tmp_path, target_modules=[name])
    theirs.save_pretrained(tmp_path, save_embedding_layers=True)
    assert_close(load_adapter(model, tmp_path)(IDS).logits, logits(theirs), reduction=256)
    name = "model.embed_tokens.weight"
    with pytest.raises(BadCheckpoint, match="trained on another"):
        load_adapter(model.with_params({**model.params, name: 2 * model.params[name]}), tmp_path)


def test_layers_that_peft_has_no_files_for(tmp_path):
    for module in (torch.nn.Linear(3, 3), torch.nn.LSTM(3, 3)):
        with pytest.raises(Unsupported, match="matrices of Linear"):
            save_adapter(lora(anyjax.from_torch(module), 2, "weight"), tmp_path)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3))
    peft.get_peft_model(net, peft.LoraConfig(target_modules=["0"])).save_pretrained(tmp_path)
    with pytest.raises(Unsupported, match="adapter of 0"):
        load_adapter(anyjax.from_torch(torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3))), tmp_path)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_adapters_of_other_dtypes(tmp_path, kind):
    model, theirs = peft_files(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    small = {k: torch.from_numpy(v).to(kind) for k, v in load_file(file).items()}
    safetensors.torch.save_file(small, file)
    got = load_adapter(model, tmp_path)
    assert_close(got(IDS).logits, logits(theirs), reduction=256, scale=1e5)


def test_peft_finds_the_base_by_itself(tmp_path):
    base("llama").save_pretrained(tmp_path / "base")
    small = lora(anyjax.from_pretrained(tmp_path / "base"), 4, KINDS["llama"][0])
    small = small.with_params(moved(small.params))
    save_adapter(small, tmp_path / "adapter")
    for auto in (peft.AutoPeftModel, peft.AutoPeftModelForCausalLM):
        theirs = auto.from_pretrained(tmp_path / "adapter").eval()
        assert_close(logits(theirs), small(IDS).logits, reduction=256)
