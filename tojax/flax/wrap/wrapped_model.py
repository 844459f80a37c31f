"""What a Flax module holds of a model beside its arrays, and the class that it gets."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flax import linen as nn
from flax import nnx

from tojax import trees
from tojax.errors import Unsupported, WrongArguments
from tojax.flax.wrap.names import BUFFERS, PARAMS, Leaf, Node, kinds, tree_of
from tojax.frontends import convert, frontend_of
from tojax.model import Model


class Held:
    """A model as a static attribute: compared by its source, never copied, short when printed.

    Example:
      >>> import copy, torch
      >>> held = Held(tojax.from_torch(torch.nn.Linear(3, 2)))
      >>> copy.deepcopy(held) is held, held
      (True, <Linear from torch>)
    """

    def __init__(self, model: Model, tree: Node | None = None):
        self.model, self.tree = model, tree or tree_of(model)
        self._sources: dict[Any, Any] = {}
        at = {k: leaf.collection for k, leaf in self.leaves.items()}
        few = {k: x for k, x in model.state.items() if at[k] == BUFFERS and trees.is_setting(x)}
        self.settings = {k: np.asarray(x) for k, x in few.items()}
        """A few integers and flags, which may decide shapes."""

    def bare(self) -> Held:
        """The same without the arrays, which would live as long as the Flax module does."""
        held = Held(replace(self.model, params={}, state={}), self.tree)
        held.settings = self.settings
        return held

    @functools.cached_property
    def leaves(self) -> dict[str, Leaf]:
        """Every array by the source's name."""
        return {leaf.name: leaf for node in self.tree.nodes() for leaf in node.leaves}

    @functools.cached_property
    def kinds(self) -> dict[tuple[str, ...], dict[str, str]]:
        """Class names of the children at a path by name, also of those without arrays."""
        found: dict[tuple[str, ...], dict[str, str]] = {}
        for (*path, name), kind in kinds(self.model).items():
            found.setdefault(tuple(path), {})[name] = kind
        return found

    def filled(
        self, arrays: Mapping[str, Any], deterministic: bool | None, averages: bool | None
    ) -> Model:
        """The model with these params and this state; its mode is that of ``in_mode``."""
        mode = deterministic, averages
        if mode not in self._sources:  # each finds out anew where its arrays go
            self._sources[mode] = in_mode(self.model, *mode).source
        is_param = lambda k: k in self.leaves and self.leaves[k].collection == PARAMS
        params = {k: v for k, v in arrays.items() if is_param(k)}
        state = {k: v for k, v in arrays.items() if k not in params}
        return Model(params, state, self._sources[mode])

    def __eq__(self, other):
        same = isinstance(other, Held) and self.model.source == other.model.source
        return same and (self.tree is other.tree or self.tree == other.tree)

    def __hash__(self):
        return hash(self.model.source)

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return f"<{self.model.source.name} from {self.model.source.framework}>"


def held_of(source: Any, function: str) -> Held:
    """A model, or what a frontend converts to one.

    Raises:
      WrongArguments: it is neither; ``function`` is what was called with it.
    """
    if isinstance(source, Model):
        return Held(source)
    torch = sys.modules.get("torch")
    none = isinstance(source, (type, nn.Module, nnx.Pytree, nnx.Variable))
    kind = None if none else frontend_of(source)
    if kind == "torch" and not isinstance(source, torch.nn.Module):  # type: ignore[union-attr]
        kind = None  # any callable
    if kind is None:
        called = source.__name__ if isinstance(source, type) else type(source).__name__
        what = f"the class {called}" if isinstance(source, type) else f"a {called}"
        raise WrongArguments(
            f"{function} takes a model, not {what}",
            why="a class has no weights yet"
            if isinstance(source, type)
            else "it is no module of torch, TensorFlow or StableHLO",
            do=f"tojax.flax.{function}(tojax.convert(...)), or the source's module itself",
        )
    return Held(convert(source))


def in_mode(model: Model, deterministic: bool | None, averages: bool | None) -> Model:
    """The model with dropout off if ``deterministic``, and with statistics as they are stored if
    ``averages``; None leaves the mode that it was converted in. One that has no modes is itself.

    Raises:
      Unsupported: it was saved in another mode, or has one mode for both.
    """
    if deterministic is None and averages is None:
        return model
    deterministic = averages if deterministic is None else deterministic
    averages = deterministic if averages is None else averages
    if deterministic != averages:
        return _mixed(model, not deterministic, not averages)
    try:
        return model.eval() if deterministic else model.train()
    except Unsupported:
        if model.source.framework != "stablehlo" and model.source.module is None:
            raise  # a saved program, whose model had modes
        return model


def _mixed(model: Model, drawing: bool, measuring: bool) -> Model:
    """Modules that keep statistics of batches in another mode than all others."""
    if model.source.framework != "torch":
        raise Unsupported(
            f"{model.source.name} with deterministic={not drawing} and "
            f"use_running_average={not measuring}",
            why=f"a model from {model.source.framework} has one mode for all of it",
            do="give both the same value",
        )
    keeps = [hasattr(module, "running_mean") for module in model.source.module.modules()]
    training = tuple(measuring if kept else drawing for kept in keeps)
    source: Any = model.source
    return replace(model, source=source.with_modes(training))


@functools.cache
def class_named(name: str, base: type) -> type:
    """A class of its own for every kind of module, so that tables and repr show the kind."""
    return type(re.sub(r"\W", "_", name) or base.__name__, (base,), {"__doc__": base.__doc__})
