"""Pipelines of tiny modules, made offline."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import diffusers
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


def stable_diffusion(scheduler: Any = None) -> diffusers.StableDiffusionPipeline:
    torch.manual_seed(0)
    scheduler = scheduler or ddim()
    if scheduler.config.get("steps_offset") == 0:  # diffusers warns of it
        scheduler = type(scheduler).from_config(scheduler.config, steps_offset=1)
    modules = {
        "unet": unet(),
        "vae": autoencoder(),
        "text_encoder": transformers.CLIPTextModel(clip_config()),
    }
    pipeline = diffusers.StableDiffusionPipeline(
        **{name: module.eval() for name, module in modules.items()},
        tokenizer=clip_tokenizer(),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def ddim() -> diffusers.DDIMScheduler:
    return diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1)
