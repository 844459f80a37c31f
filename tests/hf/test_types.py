"""Small models of the types that most programs use, beside torch, with any transformers.

`make compat TRANSFORMERS=4.57.6 TESTS=tests/hf/test_types.py` runs this with an old one, and so it
asks for nothing that only some versions have.
"""

import jax
import numpy as np
import pytest
import torch
import transformers as tf

import anyjax
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

V = dict(vocab_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
S = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
D = V | S | dict(max_position_embeddings=64)
G = D | dict(num_key_value_heads=2)
ENCODER = dict(encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48)
DECODER = dict(decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=48)
BOTH = V | ENCODER | DECODER | dict(d_model=32, decoder_start_token_id=1)
IMAGES = S | dict(image_size=16, patch_size=8)
TOKENS = np.array([[5, 6, 7, 8, 9, 10], [3, 4, 5, 6, 7, 8]])
draw = np.random.default_rng(0).standard_normal
IDS, PIXELS = {"input_ids": TOKENS}, {"pixel_values": draw((2, 3, 16, 16)).astype("f")}
OPT = dict(hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4)
SOUND = dict(num_mel_bins=8, max_source_positions=10, max_target_positions=20)
CONV = dict(conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2)
GROUPS = dict(num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
RESNET = dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")

# Class, its config's class and sizes, inputs.
TYPES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", G, IDS),
    "mistral": ("MistralForCausalLM", "MistralConfig", G | dict(sliding_window=4), IDS),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", G, IDS),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", G | dict(head_dim=8), IDS),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", G | dict(head_dim=8), IDS),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", G | dict(head_dim=8, sliding_window=4), IDS),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", G, IDS),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", V | dict(n_embd=32, n_layer=2, n_head=4), IDS),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", D, IDS),
    "opt": ("OPTForCausalLM", "OPTConfig", V | OPT | dict(word_embed_proj_dim=32), IDS),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", G | dict(num_local_experts=4), IDS),
    "mamba": ("MambaForCausalLM", "MambaConfig", V | dict(hidden_size=32, state_size=4), IDS),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        V | dict(d_model=32, d_kv=8, d_ff=48, num_heads=4, decoder_start_token_id=0),
        IDS | {"decoder_input_ids": TOKENS},
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", BOTH, IDS),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        BOTH | SOUND,
        {"input_features": draw((2, 8, 20)).astype("f"), "decoder_input_ids": TOKENS},
    ),
    "bert": ("BertForMaskedLM", "BertConfig", D, IDS),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", D, IDS),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        V | dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48),
        IDS,
    ),
    "deberta": ("DebertaV2ForMaskedLM", "DebertaV2Config", D | dict(relative_attention=True), IDS),
    "vit": ("ViTForImageClassification", "ViTConfig", IMAGES, PIXELS),
    "clip": ("CLIPModel", "CLIPConfig", dict(text_config=D, vision_config=IMAGES), IDS | PIXELS),
    "wav2vec2": (
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        V | S | CONV | GROUPS,
        {"input_values": draw((2, 400)).astype("f")},
    ),
    "resnet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        RESNET,
        {"pixel_values": draw((2, 3, 32, 32)).astype("f")},
    ),
}
TEXT = [name for name, (kind, *_) in TYPES.items() if "CausalLM" in kind or "LMHead" in kind]
TEXT += ["t5", "bart"]
NEEDS = (5, 8)  # of transformers, for anyjax.generate


def build(name):
    kind, config, sizes, inputs = TYPES[name]
    torch.manual_seed(0)
    return getattr(tf, kind)(getattr(tf, config)(**sizes)).eval(), inputs


def scores(out):
    return out["logits_per_image"] if "logits_per_image" in out else out["logits"]


@pytest.mark.parametrize("name", TYPES)
def test_forward_and_gradients(name):
    module, inputs = build(name)
    model = anyjax.from_torch(module)
    want = scores(module(**{k: torch.from_numpy(v) for k, v in inputs.items()}))
    (want**2).mean().backward()
    rng = jax.random.key(0)  # some draw in evaluation mode, too, and do not use it
    assert_close(scores(model(rng=rng, **inputs)), want.detach().numpy(), reduction=512)
    loss = lambda params: (scores(model.apply(params, rng=rng, **inputs)) ** 2).mean()
    found = jax.jit(jax.grad(loss))(model.params)
    grads = {k: p.grad.numpy() for k, p in module.named_parameters() if p.grad is not None}
    top = max(float(abs(x).max()) for x in grads.values())
    for key, grad in grads.items():
        if key in found:
            assert_close(found[key], grad, reduction=4096, scale=top)


@pytest.mark.skipif(
    tuple(map(int, tf.__version__.split(".")[:2])) < NEEDS,
    reason="anyjax.generate needs transformers 5.8",
)
@pytest.mark.parametrize("name", TEXT)
def test_text(name):
    module, inputs = build(name)
    ids = inputs["input_ids"][:1]
    options = dict(max_new_tokens=5, do_sample=False, eos_token_id=None, pad_token_id=0)
    want = module.generate(torch.from_numpy(ids), **options).numpy()
    np.testing.assert_array_equal(anyjax.generate(anyjax.from_torch(module), ids, **options), want)


def test_a_checkpoint_and_adapters(tmp_path):
    """Loaded, trained by adapters alone, saved and loaded again."""
    import optax

    build("llama")[0].save_pretrained(tmp_path / "base")
    model = anyjax.from_pretrained(tmp_path / "base")
    small = anyjax.train.lora(model, rank=2, targets="q_proj|v_proj")
    tx, batch = optax.adam(1e-2), IDS | {"labels": TOKENS}
    step = anyjax.train.make_step(lambda model, batch: model(**batch).loss, tx)
    state, losses = anyjax.train.TrainState.create(small, tx, rng=jax.random.key(0)), []
    for _ in range(3):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[2] < losses[0]
    model.save_pretrained(tmp_path / "again")
    again = anyjax.from_pretrained(tmp_path / "again")
    np.testing.assert_array_equal(again(**IDS).logits, model(**IDS).logits)
