"""Models as Flax modules, and Flax modules as models; loaded when a name is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from anyjax.errors import imports_of

if TYPE_CHECKING:
    from anyjax.flax.codegen._source import source
    from anyjax.flax.matching._load_into import load_into
    from anyjax.flax.matching._to_torch import to_torch
    from anyjax.flax.matching.read_params import read_params
    from anyjax.flax.wrap.linen import to_linen
    from anyjax.flax.wrap.nnx import Buffer, to_nnx

_HOME = {
    "Buffer": "anyjax.flax.wrap.nnx",
    "load_into": "anyjax.flax.matching._load_into",
    "read_params": "anyjax.flax.matching.read_params",
    "source": "anyjax.flax.codegen._source",
    "to_linen": "anyjax.flax.wrap.linen",
    "to_nnx": "anyjax.flax.wrap.nnx",
    "to_torch": "anyjax.flax.matching._to_torch",
}
__all__ = ["Buffer", "load_into", "read_params", "source", "to_linen", "to_nnx", "to_torch"]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(
            f"module 'anyjax.flax' has no attribute {name!r}; it has {', '.join(_HOME)}"
        )
    with imports_of(f"anyjax.flax.{name}"):
        value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOME})
