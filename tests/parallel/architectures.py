"""Small models of 20 kinds whose heads and features divide by 8, with inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers as tf

TOKENS = dict(vocab_size=96, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WIDE = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=8)
ENCODER = TOKENS | WIDE | dict(intermediate_size=128, max_position_embeddings=64)
DECODER = ENCODER | dict(num_key_value_heads=8)
GPT = TOKENS | dict(n_layer=2, n_head=8)
BOTH = TOKENS | dict(
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=8,
    decoder_attention_heads=8,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    decoder_start_token_id=1,
)
T5 = dict(num_layers=2, d_model=64, d_ff=128, num_heads=8, d_kv=8, decoder_start_token_id=0)
IMAGE = dict(image_size=32, patch_size=8, intermediate_size=128)
STAGES = dict(image_size=32, patch_size=2, embed_dim=32, depths=[2, 2], num_heads=[8, 8])
RESNET = dict(embedding_size=16, hidden_sizes=[32, 64], depths=[2, 2], layer_type="bottleneck")

IDS = {"input_ids": np.arange(32, dtype=np.int32).reshape(2, 16) % 96}
PAIR = IDS | {"decoder_input_ids": IDS["input_ids"][:, :8]}
PICTURE = {"pixel_values": np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)}
SOUND = {"input_features": np.random.default_rng(0).standard_normal((2, 16, 64), np.float32)}
SOUND |= {"decoder_input_ids": PAIR["decoder_input_ids"]}

CASES = {
    "llama": ("LlamaForCausalLM", DECODER, IDS),
    "gpt2": ("GPT2LMHeadModel", GPT | dict(n_embd=64, n_positions=64), IDS),
    "mixtral": ("MixtralForCausalLM", DECODER | dict(num_local_experts=8), IDS),
    "t5": ("T5ForConditionalGeneration", TOKENS | T5, PAIR),
    "vit": ("ViTForImageClassification", WIDE | IMAGE, PICTURE),
    "grouped heads": ("LlamaForCausalLM", DECODER | dict(num_key_value_heads=2), IDS),
    "gemma2": ("Gemma2ForCausalLM", DECODER | dict(head_dim=8), IDS),
    "qwen3": ("Qwen3ForCausalLM", DECODER | dict(head_dim=8), IDS),
    "phi3": ("Phi3ForCausalLM", DECODER, IDS),
    "olmo2": ("Olmo2ForCausalLM", DECODER, IDS),
    "opt": ("OPTForCausalLM", ENCODER | dict(ffn_dim=128, word_embed_proj_dim=64), IDS),
    "bloom": ("BloomForCausalLM", GPT | dict(hidden_size=64), IDS),
    "gpt_neox": ("GPTNeoXForCausalLM", ENCODER, IDS),
    "falcon": ("FalconForCausalLM", TOKENS | WIDE, IDS),
    "mamba": ("MambaForCausalLM", TOKENS | dict(num_hidden_layers=2, hidden_size=64), IDS),
    "bert": ("BertForMaskedLM", ENCODER, IDS),
    "roberta": ("RobertaForSequenceClassification", ENCODER, IDS),
    "bart": ("BartForConditionalGeneration", BOTH | dict(max_position_embeddings=64), PAIR),
    "swin": ("SwinForImageClassification", STAGES | dict(window_size=4), PICTURE),
    "resnet": ("ResNetForImageClassification", RESNET, PICTURE),
    "whisper": (
        "WhisperForConditionalGeneration",
        BOTH | dict(max_source_positions=32, num_mel_bins=16),
        SOUND,
    ),
}


def build(name: str):
    """(module in evaluation mode, inputs)."""
    cls, sizes, inputs = CASES[name]
    kind = getattr(tf, cls)
    torch.manual_seed(0)
    return kind(kind.config_class(**sizes)).eval(), inputs


def cross_entropy(logits, labels):
    """Of each label; optax 0.2.8's has no derivative on explicit meshes of JAX 0.12."""
    of_label = jnp.take_along_axis(logits, labels[..., None], -1).squeeze(-1)
    return jax.nn.logsumexp(logits, axis=-1) - of_label
