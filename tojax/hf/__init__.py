"""Hugging Face: checkpoints in, text out. There is no folder of models here: transformers has them.

The public functions are loaded when they are used, so that a folder can be looked at
(``checkpoint``) before anything heavy is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tojax.hf._pipeline import pipeline

__all__ = ["pipeline"]


def __getattr__(name: str):
    if name != "pipeline":
        raise AttributeError(f"module 'tojax.hf' has no attribute {name!r}")
    from tojax.hf._pipeline import pipeline

    return pipeline
