"""Models on many devices: plans are written here, and JAX distributes."""

from anyjax.parallel._compile_for import compile_for
from anyjax.parallel._estimate import estimate
from anyjax.parallel._explain import explain
from anyjax.parallel._initialize import initialize
from anyjax.parallel._shard import shard
from anyjax.parallel.batches import place

__all__ = ["compile_for", "estimate", "explain", "initialize", "place", "shard"]
