"""A plain pytree of arrays as the JAX side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.tree_util import tree_leaves_with_path

from anyjax.errors import WrongArguments
from anyjax.flax.matching import flax_layers
from anyjax.flax.matching.layer import Flax, Slot
from anyjax.flax.matching.sides.side import JaxSide, Values
from anyjax.trees import is_array
from anyjax.typing import PyTree

COLLECTIONS = {"params", "batch_stats", "state"}  # Linen's and ours: no steps of a layer's path
BOXES = ("value", "raw_value")  # what checkpoints of flax variables have around an array


class PytreeSide(JaxSide):
    """A pytree of arrays, such as haiku's params or a checkpoint's; ``apply`` runs it.

    With dots in its names it is a state dict: its arrays have torch's order of axes.
    """

    def __init__(self, tree: PyTree, kwargs: Mapping[str, object], apply: Callable | None):
        super().__init__(kwargs, apply)
        self.tree = nnx.to_pure_dict(tree) if isinstance(tree, nnx.State) else tree
        self.paths = paths(self.tree)
        keys = [key for path, _ in tree_leaves_with_path(self.tree) for key in path]
        self.is_state_dict = any("." in str(getattr(key, "key", "")) for key in keys)
        leaves = [x for x, path in zip(jax.tree.leaves(self.tree), self.paths) if path]
        if not leaves or not all(map(is_array, leaves)):
            raise WrongArguments(
                f"a {type(tree).__name__} without weights"
                if not leaves
                else f"{type(tree).__name__} holds more than arrays",
                why="weights are nnx, Linen or Equinox modules, or pytrees of named arrays",
                do="give the module, or its params alone",
            )
        self.modules = {(): apply} if apply else {}

    def slots(self) -> list[Slot]:
        leaves = zip(self.paths, jax.tree.leaves(self.tree))
        return [slot(path, leaf) for path, leaf in leaves]

    def layers(self, slots: list[Slot]) -> list[Flax]:
        layers = flax_layers.layers(slots, {})
        if self.is_state_dict:
            return [Flax(x.path, "", x.slots, {"torch_order": True}) for x in layers]
        return layers

    def write(self, values: Values) -> PyTree:
        return replaced(self.tree, self.paths, values)

    def bind(self, path: tuple, values: Values) -> tuple[PyTree, Callable]:
        run, kwargs = self.modules[path], self.kwargs
        return self.write(values), lambda tree, *args: run(tree, *args, **kwargs)


def slot(path: tuple, leaf: jax.Array) -> Slot:
    """Returns a leaf as a slot; floats are needed."""
    needed = jnp.issubdtype(leaf.dtype, jnp.inexact)
    return Slot(path, tuple(leaf.shape), leaf.dtype, needed, leaf)


def replaced(tree: PyTree, leaf_paths: list[tuple], values: Values) -> PyTree:
    """Returns the tree with these values at these paths."""
    leaves, structure = jax.tree.flatten(tree)
    values_or_leaves = [values.get(path, x) for path, x in zip(leaf_paths, leaves)]
    return jax.tree.unflatten(structure, values_or_leaves)


def paths(tree: PyTree) -> list[tuple]:
    """Returns the path of each leaf: without Linen's collections and flax's boxes, names divided.

    Example:
      >>> paths({"params": {"fc": {"kernel": {"value": 1}}}}), paths({"fc.0.weight": 1})
      ([('fc', 'kernel')], [('fc', '0', 'weight')])
    """
    leaves = [_steps(path) for path, _ in tree_leaves_with_path(tree)]
    if {path[:1] for path in leaves} <= {(x,) for x in COLLECTIONS}:
        leaves = [path[1:] for path in leaves]
    return [path[:-1] if len(path) > 1 and path[-1] in BOXES else path for path in leaves]


def _steps(path: tuple) -> tuple:
    steps: list[Any] = []
    for key in path:
        step = next(v for n in ("key", "name", "idx") if (v := getattr(key, n, None)) is not None)
        steps += step.replace("/", ".").split(".") if isinstance(step, str) else [step]
    return tuple(steps)
