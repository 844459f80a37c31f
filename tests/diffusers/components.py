"""Tiny components of pipelines, and tokenizers of a few words."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import diffusers
import tokenizers
import torch
import transformers

VOCABULARY = [
    *"loweridcatsngh ", "lo", "l</w>", "w</w>", "r</w>", "t</w>", "low</w>", "er</w>",
    "ca", "cat</w>", "<|startoftext|>", "<|endoftext|>",
]  # fmt: skip
MERGES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\nc a\nca t</w>\n"


@functools.cache
def clip_tokenizer(length: int = 77) -> transformers.CLIPTokenizer:
    folder = Path(tempfile.mkdtemp())
    tokens = [*dict.fromkeys(VOCABULARY)]
    (folder / "vocab.json").write_text(json.dumps({x: i for i, x in enumerate(tokens)}))
    (folder / "merges.txt").write_text(MERGES)
    return transformers.CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=length
    )


def clip_config(width: int = 16, **options: Any) -> transformers.CLIPTextConfig:
    return transformers.CLIPTextConfig(
        hidden_size=width, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        vocab_size=len(VOCABULARY), bos_token_id=0, eos_token_id=2, pad_token_id=1,
        projection_dim=width, **options,
    )  # fmt: skip


@functools.cache
def word_tokenizer(length: int = 16) -> transformers.PreTrainedTokenizerFast:
    words = ["<pad>", "</s>", "<unk>", "a", "cat", "low", "river", "lower", "newer"]
    model = tokenizers.models.WordLevel({x: i for i, x in enumerate(words)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        model_max_length=length,
    )  # fmt: skip


def t5(width: int = 32, kind: str = "T5") -> torch.nn.Module:
    config = getattr(transformers, f"{kind}Config")(
        d_model=width, d_ff=37, d_kv=8, num_heads=4, num_layers=2, vocab_size=32
    )
    return getattr(transformers, f"{kind}EncoderModel")(config)


def unet(context: int = 16, **options: Any) -> diffusers.UNet2DConditionModel:
    settings: dict[str, Any] = dict(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(16, 32), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=context,
        attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    return diffusers.UNet2DConditionModel(**settings | options)


def autoencoder(channels: int = 4, **options: Any) -> diffusers.AutoencoderKL:
    return diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(16, 32), norm_num_groups=8, latent_channels=channels, sample_size=16,
        **options,
    )  # fmt: skip


def gemma() -> torch.nn.Module:
    config = transformers.Gemma2Config(
        head_dim=16, hidden_size=8, intermediate_size=64, max_position_embeddings=512,
        num_attention_heads=2, num_hidden_layers=1, num_key_value_heads=2, vocab_size=32,
        attn_implementation="eager",
    )  # fmt: skip
    return transformers.Gemma2Model(config)
