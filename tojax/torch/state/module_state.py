"""Where a module keeps its tensors: read once, filled with the trace's own during a call, then put
back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import torch

from tojax import trees
from tojax.errors import WrongArguments
from tojax.torch.core.dtypes import to_jax
from tojax.torch.core.lifting import array_of, inner
from tojax.torch.core.tensor import JaxTensor, value_of
from tojax.torch.state import torchscript
from tojax.torch.state.attributes import Held, jax_dtype
from tojax.torch.state.optimizers import Optimizers
from tojax.torch.state.uncarried import Uncarried


@dataclass
class Slots:
    """The tensors of ``module`` by name; a tied tensor has one name and several places."""

    module: torch.nn.Module
    tensors: dict[str, torch.Tensor]
    params: list[str]
    state: list[str]
    places: list[tuple[dict[str, Any], str, str]]
    """(the ``_parameters`` or ``_buffers`` of a submodule, attribute, name in ``tensors``)"""
    dtypes: dict[str, torch.dtype]
    optimizers: Optimizers

    @classmethod
    def of(cls, module: torch.nn.Module) -> Slots:
        """Reads the module."""
        tensors: dict[str, torch.Tensor] = {}
        first: dict[int, str] = {}
        params: list[str] = []
        state: list[str] = []
        places: list[tuple[dict[str, Any], str, str]] = []
        optimizers = Optimizers.of(module)
        owned = {id(tensor): name for name, tensor in optimizers.owned()}
        for path, child in module.named_modules():
            for held in (child._parameters, child._buffers):
                for attribute, tensor in held.items():
                    if tensor is None:
                        continue
                    name = first.setdefault(
                        id(tensor), f"{path}.{attribute}" if path else attribute
                    )
                    places.append((held, attribute, name))
                    if name in tensors:
                        continue
                    tensors[name] = tensor
                    trained = held is child._parameters and tensor.requires_grad
                    trained = trained and id(tensor) not in owned
                    (params if trained else state).append(name)
        for name, tensor in optimizers.owned():
            if id(tensor) not in first:
                first[id(tensor)] = name
                tensors[name] = tensor
                state.append(name)
        optimizers.names = {place: first[place] for place in owned}
        dtypes = {k: t.dtype for k, t in tensors.items()}
        return cls(module, tensors, params, state, places, dtypes, optimizers)

    def abstract(self) -> tuple[dict[str, jax.ShapeDtypeStruct], dict[str, jax.ShapeDtypeStruct]]:
        """Params and state as shapes and dtypes."""
        shape = lambda name: jax.ShapeDtypeStruct(
            self.tensors[name].shape, to_jax(self.tensors[name].dtype)
        )
        return {k: shape(k) for k in self.params}, {k: shape(k) for k in self.state}

    def check(self, params: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Raises WrongArguments, naming every array that does not fit the module."""
        wrong = [f"{k} is missing" for k in self.params if k not in params]
        wrong += [f"{k} is unknown" for k in params if k not in self.tensors]
        wrong += [
            f"{k} is missing (state)" for k in self.state if k not in state and k not in params
        ]
        for name, array in (*params.items(), *state.items()):
            tensor = self.tensors.get(name)
            if not hasattr(array, "shape"):
                wrong.append(f"{name} is a {type(array).__name__}, no array")
            elif tensor is not None and tuple(tensor.shape) != tuple(array.shape):
                wrong.append(f"{name} has shape {tuple(array.shape)}, not {tuple(tensor.shape)}")
        if wrong:
            raise WrongArguments(
                f"params and state do not fit {type(self.module).__name__}: {'; '.join(wrong[:12])}"
                + (f"; and {len(wrong) - 12} more" if len(wrong) > 12 else ""),
                why="they must have the names and shapes of model.params and model.state",
                do="start from model.params, e.g. jax.tree.map(f, model.params)",
            )

    @contextlib.contextmanager
    def filled(
        self,
        tensors: Mapping[str, torch.Tensor],
        training: tuple[bool, ...],
        uncarried: Uncarried,
    ) -> Iterator[Callable[[], trees.Written]]:
        """The module with ``tensors`` in place of its own. Yields a function that tells what
        forward wrote.

        On leaving, every attribute of every submodule is what it was before.
        """
        modules = list(self.module.modules())
        before = [(m, dict(m.__dict__), [(x, dict(x)) for x in _members(m)]) for m in modules]
        modes = torchscript.modes(self.module)
        try:
            for held, attribute, name in self.places:
                held[attribute] = tensors[name]
            for (path, module), (_, attributes, members) in zip(
                self.module.named_modules(), before
            ):
                uncarried.watch_module(path, module, attributes, members)
            torchscript.set_modes(self.module, training)
            start = {k: value_of(inner(t)) for k, t in tensors.items()}
            weights = {id(t): tensors[k] for k, t in self.tensors.items()}
            given = {k: t for k, t in tensors.items() if k not in self.tensors}
            given = {k: t for k, t in given.items() if not self.optimizers.keeps(k)}
            scripted = torchscript.named(self.module).keys()
            kept = {k: given[k] for k in given.keys() - scripted}
            with (
                torchscript.filled(self.module, weights, given),
                self.held.filled(kept, weights, uncarried) as after,
                self.optimizers.filled(tensors) as stepped,
            ):
                uncarried.begin()

                def written() -> trees.Written:
                    uncarried.end()
                    rest, own = after(), stepped()
                    missed = rest.missed | own.missed | scripted
                    return trees.Written(self._written(start) | rest | own, missed)

                yield written
        finally:
            torchscript.set_modes(self.module, modes)
            for module, attributes_before, members in before:
                for now, then in members:
                    if then or len(now):
                        torchscript.restore(now, then)
                torchscript.restore(module.__dict__, attributes_before)

    @property
    def held(self) -> Held:
        """What the module keeps besides."""
        places = {(id(held), attribute) for held, attribute, _ in self.places}
        return Held(self.module, places, steps=bool(self.optimizers.optimizers))

    def _written(self, start: dict[str, Any]) -> dict[str, jax.Array]:
        """The arrays of the parameters and buffers that forward wrote."""
        written, seen = {}, set()
        for held, attribute, name in self.places:
            # TorchScript's dicts have no get()
            value = held[attribute] if attribute in held else None  # noqa: SIM401
            if name not in seen and isinstance(value, torch.Tensor):
                seen.add(name)
                if value_of(inner(value)) is not start.get(name):
                    written[name] = array_of(value).astype(jax_dtype(start[name]))
        for name, (module, attribute) in torchscript.named(self.module).items():
            value = module._c.getattr(attribute)
            if name not in self.tensors and isinstance(value, torch.Tensor):
                tensor = inner(value)
                if isinstance(tensor, JaxTensor) and tensor.array is not start.get(name):
                    written[name] = tensor.array
        return written


def _members(module: torch.nn.Module) -> list[Any]:
    """Where the module keeps its tensors, its submodules if forward may exchange them, and its
    hooks, which forward may install.
    """
    hooks = [v for k, v in module.__dict__.items() if "_hooks" in k and isinstance(v, dict)]
    own = [module._modules] if isinstance(module._modules, dict) else []
    return [module._parameters, module._buffers, *own, *hooks]
