"""Flax: weights into modules of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tojax.flax._load_into import load_into

__all__ = ["load_into"]


def __getattr__(name: str):
    if name != "load_into":
        raise AttributeError(f"module 'tojax.flax' has no attribute {name!r}")
    from tojax.flax._load_into import load_into

    return load_into
