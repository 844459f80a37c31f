"""The model inside of a Flax module, without its arrays, and the module's class."""

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

from anyjax import trees
from anyjax.errors import Unsupported, WrongArguments
from anyjax.flax.wrap.names import BUFFERS, PARAMS, Leaf, Node, class_names, tree_of
from anyjax.frontends import convert, frontend_of
from anyjax.model import Model


class WrappedModel:
    """A model as a static attribute: compared by its source, never copied, short when printed.

    Example:
      >>> import copy, torch
      >>> wrapped = WrappedModel(anyjax.from_torch(torch.nn.Linear(3, 2)))
      >>> copy.deepcopy(wrapped) is wrapped, wrapped
      (True, <Linear from torch>)
    """

    def __init__(self, model: Model, tree: Node | None = None):
        self.model, self.tree = model, tree or tree_of(model)
        self._sources: dict[Any, Any] = {}
        buffers = {k: x for k, x in model.state.items() if self.leaves[k].collection == BUFFERS}
        # small integers and flags, which shapes may depend on
        self.settings = {k: np.asarray(x) for k, x in buffers.items() if trees.is_setting(x)}

    def without_arrays(self) -> WrappedModel:
        """Returns a copy without the arrays, which the Flax module would keep alive."""
        wrapped = WrappedModel(replace(self.model, params={}, state={}), self.tree)
        wrapped.settings = self.settings
        return wrapped

    @functools.cached_property
    def leaves(self) -> dict[str, Leaf]:
        """Every leaf by the source's name."""
        return {leaf.name: leaf for node in self.tree.nodes() for leaf in node.leaves}

    @functools.cached_property
    def kinds(self) -> dict[tuple[str, ...], dict[str, str]]:
        """Class names of the children at a path by name, also of those without arrays."""
        kinds: dict[tuple[str, ...], dict[str, str]] = {}
        for (*path, name), kind in class_names(self.model).items():
            kinds.setdefault(tuple(path), {})[name] = kind
        return kinds

    def with_arrays(
        self, arrays: Mapping[str, Any], deterministic: bool | None, averages: bool | None
    ) -> Model:
        """Returns the model with these params and this state, in the mode of ``in_mode``."""
        mode = deterministic, averages
        if mode not in self._sources:  # cached: every new source looks up the places of its arrays
            self._sources[mode] = in_mode(self.model, *mode).source
        is_param = lambda k: k in self.leaves and self.leaves[k].collection == PARAMS
        params = {k: v for k, v in arrays.items() if is_param(k)}
        state = {k: v for k, v in arrays.items() if k not in params}
        return Model(params, state, self._sources[mode])

    def __eq__(self, other):
        same = isinstance(other, WrappedModel) and self.model.source == other.model.source
        return same and (self.tree is other.tree or self.tree == other.tree)

    def __hash__(self):
        return hash(self.model.source)

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        return f"<{self.model.source.name} from {self.model.source.framework}>"


def wrap(source: object, function: str) -> WrappedModel:
    """Wraps a model, or an object that a frontend converts to one.

    Raises:
      WrongArguments: it is neither; the message names ``function``, which the user called.
    """
    if isinstance(source, Model):
        return WrappedModel(source)
    torch = sys.modules.get("torch")
    unsupported = isinstance(source, (type, nn.Module, nnx.Pytree, nnx.Variable))
    kind = None if unsupported else frontend_of(source)
    if kind == "torch" and not isinstance(source, torch.nn.Module):  # type: ignore[union-attr]
        kind = None  # any callable
    if kind is None:
        name = source.__name__ if isinstance(source, type) else type(source).__name__
        shown = f"the class {name}" if isinstance(source, type) else f"a {name}"
        raise WrongArguments(
            f"{function} takes a model, not {shown}",
            why="a class has no weights yet"
            if isinstance(source, type)
            else "it is no module of torch, TensorFlow or StableHLO",
            do=f"anyjax.flax.{function}(anyjax.convert(...)), or the source's module itself",
        )
    return WrappedModel(convert(source))


def in_mode(model: Model, deterministic: bool | None, averages: bool | None) -> Model:
    """Returns the model with dropout off if ``deterministic``, and with stored statistics if
    ``averages``; None keeps the mode of the conversion. A model without modes is returned as it is.

    Raises:
      Unsupported: the model was saved in another mode, or has a single mode for both.
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
    """Returns the model with modules that keep batch statistics in a mode of their own."""
    if model.source.framework != "torch":
        raise Unsupported(
            f"{model.source.name} with deterministic={not drawing} and "
            f"use_running_average={not measuring}",
            why=f"a model from {model.source.framework} has one mode for all of it",
            do="give both the same value",
        )
    modules = model.source.module.modules()
    training = tuple(measuring if hasattr(m, "running_mean") else drawing for m in modules)
    source: Any = model.source
    return replace(model, source=source.with_modes(training))


@functools.cache
def class_named(name: str, base: type) -> type:
    """Returns a subclass with this name: tables and repr show the kind of a module."""
    return type(re.sub(r"\W", "_", name) or base.__name__, (base,), {"__doc__": base.__doc__})
