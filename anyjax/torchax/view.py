"""Tensors that share the memory of another one."""

from anyjax.torchax.tensor import View as View

__all__ = ["View"]
