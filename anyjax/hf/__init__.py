"""Hugging Face: checkpoints in, text out. There is no folder of models here: transformers has them.

The public functions are loaded when they are used, so that a folder can be looked at
(``checkpoint``) before anything heavy is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyjax import lazy

if TYPE_CHECKING:
    from anyjax.hf._pipeline import pipeline as pipeline
    from anyjax.hf.exporters import register_exporters as register_exporters

lazy.facade(
    __name__, {"pipeline": "anyjax.hf._pipeline", "register_exporters": "anyjax.hf.exporters"}
)
