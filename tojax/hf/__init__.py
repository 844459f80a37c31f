"""Hugging Face: checkpoints in, text out. There is no folder of models here: transformers has them.

The public functions are loaded when they are used, so that a folder can be looked at
(``checkpoint``) before anything heavy is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tojax.hf._pipeline import pipeline
    from tojax.hf.exporters import register_exporters

__all__ = ["pipeline", "register_exporters"]


def __getattr__(name: str):
    match name:
        case "pipeline":
            from tojax.hf._pipeline import pipeline

            return pipeline
        case "register_exporters":
            from tojax.hf.exporters import register_exporters

            return register_exporters
    raise AttributeError(f"module 'tojax.hf' has no attribute {name!r}")
