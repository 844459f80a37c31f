"""Models on many devices: plans are written here, and JAX distributes."""

from tojax.parallel._estimate import estimate
from tojax.parallel._explain import explain
from tojax.parallel._initialize import initialize
from tojax.parallel._shard import shard
from tojax.parallel.batches import place

__all__ = ["estimate", "explain", "initialize", "place", "shard"]
