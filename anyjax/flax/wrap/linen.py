"""A model as a Linen module."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import getitem
from typing import Any

import jax
from flax import linen as nn
from flax.errors import ModifyScopeVariableError

from anyjax.calls.initialise import fresh
from anyjax.errors import WrongArguments
from anyjax.flax.wrap.forward import Result, run_with_key
from anyjax.flax.wrap.names import BUFFERS, COLLECTIONS, PARAMS, STATISTICS, Leaf, Node, nested
from anyjax.flax.wrap.wrapped_model import WrappedModel, class_named, wrap
from anyjax.typing import Output

DROPOUT = "dropout"


class Part(nn.Module):
    """A submodule of a converted model: it declares its arrays and its own submodules."""

    node: Node
    initial: Callable[[str], Any]
    collections: tuple[str, ...]

    @nn.compact
    def __call__(self) -> None:
        _declare(self, self.node, self.initial, self.collections)


class Module(nn.Module):
    """A converted model as a Linen module; ``to_linen`` makes it.

    Attributes:
      held: the model.
      train: the mode of calls that do not say; None is the mode that the model was converted in.
      pretrained: whether ``init`` gives the model's own weights.
    """

    held: WrappedModel
    train: bool | None = None
    pretrained: bool = False

    @nn.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Output:
        """Runs the forward pass.

        Args:
          *args: as the source's forward takes them, and ``train``, a bool: the mode of
            this call. If forward has an argument of that name, it is the source's.
          **kwargs: the same, by name.

        Returns:
          What the source returns, in its own classes.

        Raises:
          flax.errors.ModifyScopeVariableError: it writes to a collection that is not mutable.
          MissingRng: it draws random numbers and there is no ``rngs={"dropout": key}``.
          WrongArguments, MissingOps, DataDependent: see anyjax.errors.
        """
        train = self.train
        if "train" in kwargs and "train" not in self.held.model.source.signature.parameters:
            of_call = kwargs.pop("train")
            train = train if of_call is None else of_call
        tops = {leaf.path[0] for leaf in self.held.leaves.values() if leaf.collection == PARAMS}
        if self.is_initializing() and not self.path and PARAMS in tops:
            raise WrongArguments(
                f"{self.held.tree.kind} has a parameter or submodule called {PARAMS}",
                where="the top of its variables",
                why='Linen calls no module in whose variables "params" stands inside of "params"',
                do="rename it, call the module inside of another one, or take anyjax.flax.to_nnx",
            )
        has_buffers = self.is_initializing() or self.variables.get(BUFFERS)
        declared = COLLECTIONS if has_buffers else (PARAMS, STATISTICS)
        _declare(self, self.held.tree, self._initial(), declared)
        deterministic = None if train is None else not train
        model = self.held.with_arrays(self._arrays(), deterministic, deterministic)
        do = 'module.apply(variables, ..., rngs={"dropout": key})'
        result = run_with_key(model, args, kwargs, self._draw, do, self.held.settings)
        if not self.is_initializing():
            self._write(result)
        return result.out

    def _initial(self) -> Callable[[str], Any]:
        """Returns the initial array by name; where arrays exist already, only its shape counts."""
        model = self.held.model
        arrays = {**model.params, **model.state}
        if self.is_initializing() and not self.pretrained and not self.variables.get(PARAMS):
            params, state = fresh(model, self.make_rng(PARAMS))
            arrays = {**params, **state}
        return arrays.__getitem__

    def _arrays(self) -> dict[str, Any]:
        """Returns the arrays of this scope by the source's names."""
        scope, leaves = nn.meta.unbox(self.variables), self.held.leaves
        array_of = lambda leaf: functools.reduce(getitem, leaf.path, scope[leaf.collection])
        if not scope.get(BUFFERS):
            in_scope = {k: x for k, x in leaves.items() if x.collection != BUFFERS}
            return self.held.model.state | {k: array_of(leaf) for k, leaf in in_scope.items()}
        tops = {leaf.path[0] for leaf in leaves.values()}
        added = {k: v for k, v in scope[BUFFERS].items() if k not in tops}
        return added | {name: array_of(leaf) for name, leaf in leaves.items()}

    def _draw(self) -> jax.Array | None:
        has_key = self.has_rng(DROPOUT) or self.has_rng(PARAMS)  # which make_rng falls back to
        return self.make_rng(DROPOUT) if has_key else None

    def _write(self, result: Result) -> None:
        """Stores what the forward pass wrote.

        Raises:
          flax.errors.ModifyScopeVariableError: a collection is not mutable.
        """
        writes: dict[str, dict[tuple[str, ...], Any]] = {name: {} for name in COLLECTIONS}
        for name, value in result.written.items():
            leaf = self.held.leaves.get(name, Leaf(name, (name,), BUFFERS))
            if self.is_mutable_collection(leaf.collection):
                writes[leaf.collection][leaf.path] = value
            elif name in result.missed:
                where = "/".join((*self.path, *leaf.path[:-1]))
                raise ModifyScopeVariableError(leaf.collection, leaf.path[-1], f"/{where}")
        for collection, values in writes.items():
            for name, value in nested(values).items():
                self.put_variable(collection, name, value)


def to_linen(
    model: object, *, train: bool | None = None, pretrained: bool = False, name: str | None = None
) -> Module:
    """Makes a Linen module of a model.

    Its variables stand under the source's own names,
    ``variables["params"]["layers"]["0"]["self_attn"]["q_proj"]["weight"]``: params in ``params``,
    statistics of batches in ``batch_stats``, everything else in ``buffers``, which ``apply`` takes
    from the model where they are left out. Tied weights stand once, under their first name.

    ``module.apply(variables, *args, train=True, mutable=["batch_stats"], rngs={"dropout": key})``
    takes what the source's forward takes, and ``train``. As with ``nn.BatchNorm``, a call in
    training mode that may not write to ``batch_stats`` raises ``ModifyScopeVariableError``.

    Args:
      model: an ``anyjax.Model``, or what ``anyjax.convert`` makes one of: a torch module, a Keras
        model, a StableHLO artifact.
      train: the mode of calls without ``train=``; None is the mode that the model is in.
      pretrained: ``init`` gives the model's own arrays, not copies. Otherwise it makes fresh ones
        by the source's own initialisers, from the key; a parameter that none of them makes keeps
        its value, and a warning names it.
      name: of the module in its parent.

    Raises:
      WrongArguments: ``model`` is no model.

    Example:
      >>> import jax, numpy as np, torch
      >>> module = anyjax.flax.to_linen(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()))
      >>> x = np.ones((5, 3), np.float32)
      >>> variables = module.init(jax.random.key(0), x)
      >>> variables["params"]["0"]["weight"].shape, module.apply(variables, x).shape
      ((2, 3), (5, 2))
    """
    wrapped = wrap(model, "to_linen")
    cls = class_named(wrapped.tree.kind, Module)
    return cls(held=wrapped, train=train, pretrained=pretrained, name=name)


def _declare(
    module: nn.Module, node: Node, initial: Callable[[str], Any], collections: tuple[str, ...]
) -> None:
    for leaf in node.leaves:
        if leaf.collection == PARAMS:
            module.param(leaf.path[-1], lambda _, name=leaf.name: initial(name))
        elif leaf.collection in collections:
            module.variable(leaf.collection, leaf.path[-1], initial, leaf.name)
    for name, child in node.children:
        class_named(child.kind, Part)(child, initial, collections, name=name)()
