"""Where a module keeps its tensors: read once, filled with the trace's own during a call, then put
back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import torch

from tojax.errors import Unsupported, WrongArguments
from tojax.torch import script
from tojax.torch.dtypes import to_jax
from tojax.torch.tensor import JaxTensor, inner, value_of
from tojax.torch.trace import array_of, lift


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

    @classmethod
    def of(cls, module: torch.nn.Module) -> Slots:
        """Reads the module."""
        tensors: dict[str, torch.Tensor] = {}
        first: dict[int, str] = {}
        params: list[str] = []
        state: list[str] = []
        places: list[tuple[dict[str, Any], str, str]] = []
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
                    (params if trained else state).append(name)
        return cls(module, tensors, params, state, places, {k: t.dtype for k, t in tensors.items()})

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
            if tensor is not None and tuple(tensor.shape) != tuple(array.shape):
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
        self, tensors: Mapping[str, torch.Tensor], training: tuple[bool, ...]
    ) -> Iterator[Callable]:
        """The module with ``tensors`` in place of its own. Yields a function that tells what
        forward wrote.

        On leaving, every attribute of every submodule is what it was before.
        """
        modules = list(self.module.modules())
        before = [(m, dict(m.__dict__), dict(m._parameters), dict(m._buffers)) for m in modules]
        modes = script.modes(self.module)
        containers = _containers(modules)
        try:
            for held, attribute, name in self.places:
                held[attribute] = tensors[name]
            script.set_modes(self.module, training)
            attributes = self._fill_attributes(tensors)
            start = {k: value_of(inner(t)) for k, t in tensors.items()}
            with script.filled(modules, {id(t): tensors[k] for k, t in self.tensors.items()}):
                yield lambda: self._written(start, attributes)
        finally:
            script.set_modes(self.module, modes)
            for module, attributes_before, parameters, buffers in before:
                for now, then in ((module._parameters, parameters), (module._buffers, buffers)):
                    script.restore(now, then)
                script.restore(module.__dict__, attributes_before)
            for container, then in containers:
                container.clear()
                container.update(then) if isinstance(container, dict) else container.extend(then)

    def number(self, name: str) -> float | None:
        """A plain number that a module keeps under this name."""
        value = self._attribute(name)
        return value if isinstance(value, (int, float)) else None

    def _attribute(self, name: str) -> Any:
        path, _, attribute = name.rpartition(".")
        return getattr(self.module.get_submodule(path), attribute, None)

    def _fill_attributes(self, tensors) -> dict[str, torch.Tensor]:
        """Plain tensor attributes become constants of the trace that forward may write to."""
        found = {}
        for path, module in self.module.named_modules():
            for attribute, value in list(module.__dict__.items()):
                name = f"{path}.{attribute}" if path else attribute
                if name in tensors:
                    module.__dict__[attribute] = tensors[name]
                elif isinstance(value, torch.Tensor) and not torch._is_functional_tensor(value):
                    module.__dict__[attribute] = found[name] = lift(value.detach())
        return {k: inner(v) for k, v in found.items()}

    def _written(self, start: dict[str, Any], attributes: dict[str, Any]) -> dict[str, jax.Array]:
        """The arrays of what forward wrote: buffers, and tensors that it keeps as attributes."""
        written, seen = {}, set()
        for held, attribute, name in self.places:
            # TorchScript's dicts have no get()
            value = held[attribute] if attribute in held else None  # noqa: SIM401
            if name not in seen and isinstance(value, torch.Tensor):
                seen.add(name)
                if value_of(inner(value)) is not start.get(name):
                    written[name] = array_of(value).astype(_dtype(start[name]))
        for path, module in self.module.named_modules():
            values = {**module.__dict__, **module._buffers, **script.attributes(module)}
            for attribute, value in values.items():
                name = f"{path}.{attribute}" if path else attribute
                if name in self.tensors or not isinstance(value, torch.Tensor):
                    continue
                now = inner(value)
                same = attributes.get(name)
                known = now is same or (name in start and value_of(now) is start[name])
                if not known and (name in attributes or isinstance(now, JaxTensor)):
                    written[name] = array_of(now)
        return written | self._replaced(start)

    def _replaced(self, start: dict[str, Any]) -> dict[str, jax.Array]:
        """Plain numbers that forward put in the place of tensors that it kept before."""
        found = {}
        for name in start.keys() - self.tensors.keys():
            value = self._attribute(name)
            if isinstance(value, torch.Tensor):
                continue
            if not isinstance(value, (int, float)):
                raise Unsupported(
                    f"forward puts {type(value).__name__} in the place of the tensor {name}",
                    why="the state's entries are arrays before and after",
                    do="keep a tensor or a number there, such as one that says whether it is set",
                )
            found[name] = jnp.asarray(value, _dtype(start[name]))
        return found


def _dtype(value: Any) -> Any:
    """The JAX dtype of what a state holds: an array, or a tensor whose values are known."""
    return to_jax(value.dtype) if isinstance(value, torch.Tensor) else value.dtype


def _containers(modules) -> list[tuple[Any, Any]]:
    """Copies of the plain lists and dicts that modules hold, which forward may append to."""
    kinds = (list, dict)
    own = ("_parameters", "_buffers", "_modules")
    found = [v for m in modules for k, v in m.__dict__.items() if type(v) in kinds and k not in own]
    return [(v, v.copy()) for v in found]
