"""Models as Flax modules, and Flax modules as models; loaded when a name is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyjax import lazy

if TYPE_CHECKING:
    from anyjax.flax.codegen._source import source as source
    from anyjax.flax.matching._load_into import load_into as load_into
    from anyjax.flax.matching._to_torch import to_torch as to_torch
    from anyjax.flax.matching.read_params import read_params as read_params
    from anyjax.flax.wrap.linen import to_linen as to_linen
    from anyjax.flax.wrap.nnx import Buffer as Buffer
    from anyjax.flax.wrap.nnx import to_nnx as to_nnx

lazy.facade(
    __name__,
    {
        "Buffer": "anyjax.flax.wrap.nnx",
        "load_into": "anyjax.flax.matching._load_into",
        "read_params": "anyjax.flax.matching.read_params",
        "source": "anyjax.flax.codegen._source",
        "to_linen": "anyjax.flax.wrap.linen",
        "to_nnx": "anyjax.flax.wrap.nnx",
        "to_torch": "anyjax.flax.matching._to_torch",
    },
)
