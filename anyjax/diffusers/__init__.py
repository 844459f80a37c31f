"""Pipelines of diffusers: one program for a whole call, its denoising loop rolled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyjax import lazy

if TYPE_CHECKING:
    from anyjax.diffusers._from_diffusers import from_diffusers as from_diffusers
    from anyjax.diffusers.pipeline import Pipeline as Pipeline

lazy.facade(
    __name__,
    {
        "Pipeline": "anyjax.diffusers.pipeline",
        "from_diffusers": "anyjax.diffusers._from_diffusers",
    },
)
