"""Models on many devices: plans are written here, and JAX distributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyjax import lazy

if TYPE_CHECKING:
    from anyjax.parallel._compile_for import compile_for as compile_for
    from anyjax.parallel._estimate import estimate as estimate
    from anyjax.parallel._explain import explain as explain
    from anyjax.parallel._initialize import initialize as initialize
    from anyjax.parallel._shard import shard as shard
    from anyjax.parallel.batches import place as place

lazy.facade(
    __name__,
    {
        "compile_for": "anyjax.parallel._compile_for",
        "estimate": "anyjax.parallel._estimate",
        "explain": "anyjax.parallel._explain",
        "initialize": "anyjax.parallel._initialize",
        "shard": "anyjax.parallel._shard",
        "place": "anyjax.parallel.batches",
    },
)
