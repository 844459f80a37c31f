"""How torch's operators are written in JAX, by family."""

from tojax.flax.codegen.ops import create, elementwise, index, nn, reduce, shape

__all__ = ["create", "elementwise", "index", "nn", "reduce", "shape"]
