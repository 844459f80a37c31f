"""torch's pytrees, without what torch's own functions leave behind: their recursive closures hold
the leaves until Python's garbage is collected, and with them JAX's tracers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

from anyjax.typing import PyTree


def flatten(tree: PyTree) -> tuple[list[Any], Any]:
    """(leaves, structure); ``structure.unflatten`` takes leaves."""
    leaves, structure = _pytree.tree_flatten(tree)
    tensors = [*leaves]
    leaves.clear()
    return tensors, structure


def map_tensors(function: Callable, tree: PyTree) -> Any:
    """Returns the tree with ``function`` of each tensor."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    leaves, structure = flatten(tree)
    return structure.unflatten([function(x) if isinstance(x, torch.Tensor) else x for x in leaves])
