"""Hugging Face: checkpoints in, text out. There is no folder of models here: transformers has them.

The public functions are loaded when they are used, so that a folder can be looked at
(``checkpoint``) before anything heavy is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tojax.errors import imports_of

if TYPE_CHECKING:
    from tojax.hf._pipeline import pipeline
    from tojax.hf.exporters import register_exporters

__all__ = ["pipeline", "register_exporters"]


_HOME = {"pipeline": "tojax.hf._pipeline", "register_exporters": "tojax.hf.exporters"}


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'tojax.hf' has no attribute {name!r}")
    with imports_of(f"tojax.hf.{name}"):
        return getattr(import_module(_HOME[name]), name)
