"""Models as Flax modules, and Flax modules as models; loaded when a name is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tojax.errors import imports_of

if TYPE_CHECKING:
    from tojax.flax.codegen._source import source
    from tojax.flax.matching._load_into import load_into
    from tojax.flax.matching._to_torch import to_torch
    from tojax.flax.matching.read_params import read_params
    from tojax.flax.wrap.linen import to_linen
    from tojax.flax.wrap.nnx import Buffer, to_nnx

_HOME = {
    "Buffer": "tojax.flax.wrap.nnx",
    "load_into": "tojax.flax.matching._load_into",
    "read_params": "tojax.flax.matching.read_params",
    "source": "tojax.flax.codegen._source",
    "to_linen": "tojax.flax.wrap.linen",
    "to_nnx": "tojax.flax.wrap.nnx",
    "to_torch": "tojax.flax.matching._to_torch",
}
__all__ = ["Buffer", "load_into", "read_params", "source", "to_linen", "to_nnx", "to_torch"]


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(
            f"module 'tojax.flax' has no attribute {name!r}; it has {', '.join(_HOME)}"
        )
    with imports_of(f"tojax.flax.{name}"):
        value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOME})
