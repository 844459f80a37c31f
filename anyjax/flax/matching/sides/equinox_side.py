"""An Equinox module as the JAX side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax

from anyjax.flax.matching import equinox_layers
from anyjax.flax.matching.layer import Flax, Slot
from anyjax.flax.matching.sides.pytree_side import paths, replaced, slot
from anyjax.flax.matching.sides.side import JaxSide, Values
from anyjax.trees import is_array
from anyjax.typing import PyTree


class EquinoxSide(JaxSide):
    """An Equinox module, and its ``equinox.nn.State`` if it has one; a copy runs in inference mode.

    Equinox modules take an example where torch's take a batch, so they are mapped over one axis,
    and the layers inside of one that is applied to a sequence over two.
    """

    mapped = (1, 0, 2)

    def __init__(
        self,
        module: eqx.Module,
        state: eqx.nn.State | None,
        kwargs: Mapping[str, object],
        apply: Callable | None,
    ):
        super().__init__(kwargs, apply)
        self.module, self.state = module, state
        self.modules = dict(_modules(eqx.nn.inference_mode(module), ()))
        norms = [x for x in self.modules.values() if isinstance(x, eqx.nn.BatchNorm)]
        self.axis_name = norms[0].axis_name if norms else None

    def slots(self) -> list[Slot]:
        leaves = zip(paths(self.module), jax.tree.leaves(self.module))
        slots = [slot(path, leaf) for path, leaf in leaves if is_array(leaf)]
        for path, (mean, var) in self._statistics().items():
            slots += [slot((*path, "mean"), mean), slot((*path, "var"), var)]
        return slots

    def layers(self, slots: list[Slot]) -> list[Flax]:
        return equinox_layers.layers(slots, self.modules)

    def write(self, values: Values) -> PyTree:
        """Returns the module; of one with a State both."""
        module = replaced(self.module, paths(self.module), values)
        return module if self.state is None else (module, self._filled_state((), values))

    def bind(self, path: tuple, values: Values) -> tuple[PyTree, Callable]:
        inner = {p[len(path) :]: v for p, v in values.items() if p[: len(path)] == path}
        node = self.modules[path]
        arrays, rest = eqx.partition(replaced(node, paths(node), inner), is_array)
        state = None if self.state is None else self._filled_state(path, values)
        kwargs = {} if path else self.kwargs
        run = self.apply if self.apply and not path else lambda module, *args: module(*args)

        def call(weights: PyTree, *args: jax.Array) -> PyTree:
            arrays, state = weights
            module = eqx.combine(arrays, rest)
            if state is None:
                return run(module, *args, **kwargs)
            try:
                return run(module, *args, state, **kwargs)[0]
            except TypeError:  # a submodule that takes no state
                return run(module, *args, **kwargs)

        return (arrays, state), call

    def _statistics(self) -> dict[tuple, tuple[jax.Array, jax.Array]]:
        """Returns the running means and variances of BatchNorm by path."""
        norms = {p: x for p, x in self.modules.items() if isinstance(x, eqx.nn.BatchNorm)}
        if self.state is None:
            return {}
        return {path: self.state.get(_index(norm)) for path, norm in norms.items()}

    def _filled_state(self, prefix: tuple, values: Values) -> eqx.nn.State:
        """Returns the state with the means and variances among the values inside of a submodule."""
        state = jax.tree.map(lambda x: x, self.state)  # State.set makes the old one invalid
        for path, (mean, var) in self._statistics().items():
            if path[: len(prefix)] == prefix and (*path, "mean") in values:
                norm = self.modules[path]
                mean, var = values[(*path, "mean")], values[(*path, "var")]
                state = state.set(_index(norm), (mean, var))
                if norm.ema_first_time_index is not None:
                    state = state.set(norm.ema_first_time_index, False)
        return state


def _index(norm: eqx.nn.BatchNorm) -> Any:
    return norm.ema_state_index if norm.mode == "ema" else norm.batch_state_index


def _modules(node: PyTree, path: tuple) -> Iterator[tuple[tuple, eqx.Module]]:
    """Yields all submodules by path, and the module itself."""
    children: Mapping[Any, Any] = {}
    if isinstance(node, eqx.Module):
        yield path, node
        children = {f.name: getattr(node, f.name, None) for f in dataclasses.fields(node)}
    elif isinstance(node, Mapping):
        children = node
    elif isinstance(node, list | tuple):
        children = dict(enumerate(node))
    for name, child in children.items():
        yield from _modules(child, (*path, name))
