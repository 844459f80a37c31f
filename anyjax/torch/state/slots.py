"""Where a module keeps its tensors: read once, filled with the trace's own during a call, then put
back.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import torch

from anyjax import trees, warn_once
from anyjax.errors import LostGradient, WrongArguments
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.interop import is_dense
from anyjax.torch.core.lifting import array_of, inner, value_in
from anyjax.torch.core.modules import named_modules
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.objects.contents import NUMBERS
from anyjax.torch.objects.functions import Members, is_weight, reached
from anyjax.torch.state import shared_memory, torchscript
from anyjax.torch.state.attributes import AttributeState, jax_dtype
from anyjax.torch.state.optim.optimizers import Optimizers
from anyjax.torch.state.uncarried import Uncarried


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
    attributes: AttributeState
    """the state of the module besides parameters and buffers"""
    scripted: bool
    """whether a submodule is TorchScript's"""
    hooked: bool
    """whether there are hooks of the caller's, on submodules or on their tensors"""

    @classmethod
    def of(cls, module: torch.nn.Module) -> Slots:
        tensors: dict[str, torch.Tensor] = {}
        first: dict[int, str] = {}
        params: list[str] = []
        state: list[str] = []
        places: list[tuple[dict[str, Any], str, str]] = []
        attributes, paths = AttributeState(module), named_modules(module)
        modules = [*paths.values()]
        classes: dict[int, Any] = {id(vars(m)): type(m) for m in modules}
        # A module may hold one for somebody else: weights are params unless forward knows it.
        optimizers = Optimizers.of(
            (name, holder[key])
            for name, holder, key, loose in attributes.roots()
            if loose or (id(holder) in classes and key in reached(classes[id(holder)]))
        )
        owned = {id(tensor): name for name, tensor in optimizers.owned()}
        for path, child in paths.items():
            for holder in (child._parameters, child._buffers):
                for attribute, tensor in holder.items():
                    if tensor is None or (holder is child._buffers and not is_dense(tensor)):
                        continue  # such buffers stay the module's own
                    name = first.setdefault(
                        id(tensor), f"{path}.{attribute}" if path else attribute
                    )
                    places.append((holder, attribute, name))
                    if name in tensors:
                        continue
                    tensors[name] = tensor
                    trained = holder is child._parameters and tensor.requires_grad
                    trained = trained and id(tensor) not in owned
                    (params if trained else state).append(name)
        for name, tensor in optimizers.owned():
            if id(tensor) not in first:
                first[id(tensor)] = name
                tensors[name] = tensor
                state.append(name)
        optimizers.names = {place: first[place] for place in owned}
        dtypes = {k: t.dtype for k, t in tensors.items()}
        scripted = any(isinstance(m, torch.jit.ScriptModule) for m in modules)
        hooked = any(m._forward_hooks or m._forward_pre_hooks for m in modules)
        hooks = (
            h for t in tensors.values() for h in (t._backward_hooks, t._post_accumulate_grad_hooks)
        )
        hooked |= any(hooks)
        attributes.places = {(id(holder), attribute) for holder, attribute, _ in places}
        attributes.names = first
        attributes.steps = bool(optimizers.optimizers)
        return cls(
            module, tensors, params, state, places, dtypes, optimizers, attributes, scripted, hooked
        )

    def warn_unregistered(self) -> None:
        """Warns where an attribute is around weights that torch does not register."""
        registered = {id(t) for t in self.tensors.values()} | self.optimizers.names.keys()
        for name, holder, key, loose in self.attributes.roots():
            value = holder[key]
            if loose or isinstance(value, (torch.Tensor, *NUMBERS)):
                continue
            members = Members.of(value)
            weights = filter(is_weight, members.parameters()) if members else ()
            if not registered.issuperset(map(id, weights)):
                warn_once.warn(
                    f"{name} of {type(self.module).__name__} holds weights that params lack: torch "
                    "registers none in plain lists, dicts and objects, so that its parameters() "
                    "lack them, too, and nothing trains them. Make it an nn.ModuleList, "
                    "nn.ModuleDict or nn.ParameterList",
                    LostGradient,
                )

    def abstract(self) -> tuple[dict[str, jax.ShapeDtypeStruct], dict[str, jax.ShapeDtypeStruct]]:
        """Params and state as shapes and dtypes."""
        shape = lambda name: jax.ShapeDtypeStruct(
            self.tensors[name].shape, to_jax(self.tensors[name].dtype)
        )
        return {k: shape(k) for k in self.params}, {k: shape(k) for k in self.state}

    def check(self, params: Mapping[str, object], state: Mapping[str, object]) -> None:
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
        self, tensors: Mapping[str, torch.Tensor], training: tuple[bool, ...], uncarried: Uncarried
    ) -> Iterator[Callable[[], trees.Written]]:
        """Yields the module with ``tensors`` in place of its own. Yields a function that tells what
        forward wrote.

        On leaving, every attribute of every submodule is what it was before.
        """
        modules = named_modules(self.module)
        originals = {k: (dict(vars(m)), _contents(m)) for k, m in modules.items()}
        try:
            with contextlib.ExitStack() as stack:
                for holder, attribute, name in self.places:
                    holder[attribute] = tensors[name]
                for path, module in modules.items():
                    uncarried.watch_module(path, module, *originals[path])
                self._set_modes(stack, training)
                yield self._fill(stack, tensors, uncarried)
        finally:
            for path, module in modules.items():
                attributes, contents = originals[path]
                for now, content in contents:
                    if content or len(now):
                        restore(now, content)
                restore(vars(module), attributes)

    def _set_modes(self, stack: contextlib.ExitStack, training: tuple[bool, ...]) -> None:
        """Around ``train()``, which modules may override."""
        if self.scripted:
            stack.callback(torchscript.set_modes, self.module, torchscript.modes(self.module))
            torchscript.set_modes(self.module, training)
            return
        for module, mode in zip(named_modules(self.module).values(), training):
            vars(module)["training"] = mode

    def _fill(
        self, stack: contextlib.ExitStack, tensors: Mapping[str, torch.Tensor], uncarried: Uncarried
    ) -> Callable[[], trees.Written]:
        """Puts tensors where they are kept besides; returns what reads everything again."""
        start = {k: value_in(t) for k, t in tensors.items()}
        weights = {id(t): tensors[k] for k, t in self.tensors.items()}
        besides = {k: t for k, t in tensors.items() if k not in self.tensors}
        scripted: dict[str, Any] = {}
        if self.scripted:
            scripted = torchscript.named(self.module)
            values = stack.enter_context(torchscript.filled(self.module, weights, besides))
            uncarried.watch("", values, dict(values))
        readers = []
        if self.optimizers:
            besides = {k: t for k, t in besides.items() if not self.optimizers.keeps(k)}
            readers.append(stack.enter_context(self.optimizers.filled(tensors)))
        besides = {k: t for k, t in besides.items() if k not in scripted}
        readers.append(stack.enter_context(self.attributes.filled(besides, weights, uncarried)))
        uncarried.watch_gradients({k: tensors[k] for k in self.params})
        uncarried.begin()

        def read() -> trees.Written:
            uncarried.end()
            writes = [reader() for reader in readers]
            written = self._written(start, scripted)
            for write in writes:
                written |= write
            return trees.Written(written, {*scripted}.union(*(write.missed for write in writes)))

        return read

    @functools.cached_property
    def overlapping(self) -> dict[str, str]:
        """Tensors that lie in the memory of others; asked for outside of a trace."""
        return shared_memory.overlapping(self.attributes.leaves() | self.tensors)

    def _written(
        self, start: Mapping[str, object], scripted: Mapping[str, tuple[torch.nn.Module, str]]
    ) -> dict[str, jax.Array]:
        """Returns the arrays of the parameters and buffers that forward wrote."""
        written, seen = {}, set()
        for holder, attribute, name in self.places:
            # TorchScript's dicts have no get()
            value = holder[attribute] if attribute in holder else None  # noqa: SIM401
            if name not in seen and isinstance(value, torch.Tensor):
                seen.add(name)
                if value_in(value) is not start.get(name):
                    written[name] = array_of(value).astype(jax_dtype(start[name]))
        for name, (module, attribute) in scripted.items():
            value = module._c.getattr(attribute)
            if name not in self.tensors and isinstance(value, torch.Tensor):
                tensor = inner(value)
                if isinstance(tensor, JaxTensor) and tensor.array is not start.get(name):
                    written[name] = tensor.array
        return written


def _contents(module: torch.nn.Module) -> list[tuple[Any, dict]]:
    """(holder, its content) of where the module keeps its tensors, its submodules if forward may
    exchange them, and its hooks, which forward may install.
    """
    hooks = [v for k, v in vars(module).items() if "_hooks" in k and isinstance(v, dict)]
    submodules = [module._modules] if isinstance(module._modules, dict) else []
    return [(x, dict(x)) for x in (module._parameters, module._buffers, *submodules, *hooks)]


def restore(holder: Any, before: Mapping) -> None:
    """Gives a module's dict its former content; TorchScript's have the same keys for ever."""
    if isinstance(holder, dict):
        holder.clear()
        holder.update(before)
        return
    for name, value in before.items():
        holder[name] = value
