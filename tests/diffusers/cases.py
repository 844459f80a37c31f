"""Calls of tiny pipelines, with the noise that they begin with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import diffusers
import torch

from tests.diffusers import pipelines


class Case(NamedTuple):
    """A pipeline and the arguments of a call."""

    make: Callable[..., Any]
    options: dict[str, Any]


def noise(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _of(make: Callable[..., Any], *shape: int, **options: Any) -> Case:
    return Case(make, {"latents": noise(*shape), **options})


SMALL = {"height": 16, "width": 16}
SHORT = {"prompt": "a cat", "max_sequence_length": 16}
CAT = {"prompt": "a cat"}
EMBEDS = {"image_embeds": noise(1, 16, seed=2), "negative_image_embeds": noise(1, 16, seed=3)}
CASES = {
    "StableDiffusion": _of(pipelines.stable_diffusion, 1, 4, 8, 8, **CAT),
    "StableDiffusionControlNet": _of(
        pipelines.controlled, 1, 4, 8, 8, image=noise(1, 3, 16, 16).sigmoid(), **CAT
    ),
    "LatentConsistencyModel": _of(pipelines.consistent, 1, 4, 8, 8, **CAT),
    "StableDiffusionXL": _of(pipelines.xl, 1, 4, 8, 8, **CAT),
    "StableDiffusion3": _of(pipelines.sd3, 1, 4, 8, 8, **CAT),
    "Flux": _of(pipelines.flux, 1, 16, 16, **SMALL, **SHORT),
    "Wan": _of(pipelines.wan, 1, 16, 3, 2, 2, num_frames=9, **SMALL, **SHORT),
    "LTX": _of(pipelines.ltx, 1, 192, 8, height=32, width=32, num_frames=9, **SHORT),
    "PixArtAlpha": _of(
        pipelines.pixart, 1, 4, 8, 8, use_resolution_binning=False, **SMALL, **SHORT
    ),
    "PixArtSigma": _of(
        partial(pipelines.pixart, kind="Sigma"), 1, 4, 8, 8, use_resolution_binning=False, **SMALL,
        **SHORT,
    ),
    "KandinskyV22": _of(pipelines.kandinsky, 1, 4, 32, 32, height=64, width=64, **EMBEDS),
    "QwenImage": _of(
        pipelines.qwen_image, 1, 16, 16, height=32, width=32, negative_prompt="low",
        true_cfg_scale=2.0, **SHORT,
    ),
    "Sana": _of(
        pipelines.sana, 1, 4, 16, 16, height=32, width=32, use_resolution_binning=False,
        complex_human_instruction=None, **SHORT,
    ),
    "Lumina2": _of(pipelines.lumina, 1, 4, 16, 16, height=32, width=32, **SHORT),
    "CogVideoX": _of(pipelines.cogvideo, 1, 3, 4, 2, 2, num_frames=9, **SMALL, **SHORT),
    "AuraFlow": _of(pipelines.aura, 1, 4, 8, 8, **SMALL, **SHORT),
    "Latte": _of(
        pipelines.latte, 1, 4, 16, 8, 8, video_length=16, clean_caption=False, mask_feature=False,
        **SMALL, **CAT,
    ),
    "AnimateDiff": _of(pipelines.animated, 1, 4, 4, 8, 8, num_frames=4, **SMALL, **CAT),
    "StableAudio": _of(pipelines.stable_audio, 1, 3, 4, audio_end_in_s=2.0, **CAT),
    "DDIM": Case(pipelines.unconditional, {"batch_size": 2}),
}  # fmt: skip

SCHEDULERS: dict[str, dict[str, Any]] = {
    "DDIM": {"clip_sample": False, "set_alpha_to_one": False},
    "DDPM": {"clip_sample": False},
    "DEISMultistep": {},
    "DPMSolverMultistep": {},
    "DPMSolverSinglestep": {},
    "EulerAncestralDiscrete": {},
    "EulerDiscrete": {},
    "HeunDiscrete": {},
    "KDPM2AncestralDiscrete": {},
    "KDPM2Discrete": {},
    "LCM": {"clip_sample": False, "set_alpha_to_one": False},
    "LMSDiscrete": {},
    "PNDM": {"skip_prk_steps": True},
    "SASolver": {},
    "TCD": {"clip_sample": False, "set_alpha_to_one": False},
    "UniPCMultistep": {},
}
FLOWS: dict[str, dict[str, Any]] = {"FlowMatchHeunDiscrete": {}}


def scheduler(name: str) -> Any:
    """Makes a scheduler by its name."""
    return getattr(diffusers, f"{name}Scheduler")(**(SCHEDULERS | FLOWS)[name])
