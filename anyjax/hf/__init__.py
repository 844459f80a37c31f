"""Hugging Face: checkpoints in, text out. There is no folder of models here: transformers has them.

The public functions are loaded when they are used, so that a folder can be looked at
(``checkpoint``) before anything heavy is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from anyjax.errors import imports_of

if TYPE_CHECKING:
    from anyjax.hf._pipeline import pipeline
    from anyjax.hf.exporters import register_exporters

__all__ = ["pipeline", "register_exporters"]


_HOME = {"pipeline": "anyjax.hf._pipeline", "register_exporters": "anyjax.hf.exporters"}


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'anyjax.hf' has no attribute {name!r}")
    with imports_of(f"anyjax.hf.{name}"):
        return getattr(import_module(_HOME[name]), name)
