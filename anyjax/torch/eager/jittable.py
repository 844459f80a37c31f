"""Modules whose methods are compiled programs."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anyjax.torch.eager.moved import to_jax
from anyjax.torch.eager.tensor import EagerTensor, in_memory
from anyjax.torch.eager.torch_jax_views import jax_jit
from anyjax.torch.objects.copies import shell
from anyjax.torch.objects.walk import Walk
from anyjax.torch.state.shared_memory import overlapping
from anyjax.typing import PyTree, TorchOutput


class _Method(torch.nn.Module):
    """A method of a module as the forward of another one."""

    def __init__(self, model: torch.nn.Module, function: Callable[..., PyTree]):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *args: PyTree, **kwargs: PyTree) -> Any:
        return self.function(*args, **kwargs)


class JittableModule(torch.nn.Module):
    """A module whose methods run as programs that ``jax.jit`` compiles, ``forward`` by itself.

    The tensors in the module, attributes and those in lists and dicts among them, are arguments of
    a program; its numbers and switches, such as ``training``, are static. What a method writes to
    tensors, such as BatchNorm's statistics, is written. torch's autograd does not see into a
    program; ``functional_call`` is for JAX's gradients.

    Attributes:
      params, buffers: tensors on JAX by name; tied parameters have one name.

    Args:
      m: the module. It is the one inside where its tensors are on JAX, else a copy of it is.
      extra_jit_args: those of ``jax.jit``.
      dedup_parameters: whether tied parameters stay tied.

    Example:
      >>> model = anyjax.torch.interop.JittableModule(torch.nn.Linear(3, 2))
      >>> model(to_jax(torch.ones(4, 3))).shape
      torch.Size([4, 2])
    """

    _model: torch.nn.Module

    def __init__(
        self, m: torch.nn.Module, extra_jit_args: Mapping[str, object] | None = None,
        dedup_parameters: bool = True,
    ):  # fmt: skip
        super().__init__()
        self._model = self._placed(m)
        self._options = extra_jit_args or {}
        self._tied = {"remove_duplicate": dedup_parameters}
        self._jitted: dict[str, Callable[..., Any] | None] = {}

    @staticmethod
    def _placed(module: torch.nn.Module) -> torch.nn.Module:
        """Returns the module itself where its tensors are on JAX, else a copy whose tensors are."""
        tensors, _ = _leaves(module)
        if all(isinstance(x, EagerTensor) for x in tensors.values()):
            return module
        copied, _ = shell(module)
        move(copied)
        return copied

    @property
    def params(self) -> dict[str, torch.Tensor]:
        return dict(self._model.named_parameters(**self._tied))

    @params.setter
    def params(self, new: Mapping[str, torch.Tensor]) -> None:
        self._replace(self.params, new)

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        return dict(self._model.named_buffers(**self._tied))

    @buffers.setter
    def buffers(self, new: Mapping[str, torch.Tensor]) -> None:
        self._replace(self.buffers, new)

    def _replace(self, old: Mapping[str, torch.Tensor], new: Mapping[str, torch.Tensor]) -> None:
        """Puts tensors in the places of those in the module that have the same names."""
        by_id = {id(x): new[name] for name, x in old.items() if name in new}
        _walk(self._model, lambda _, x: by_id.get(id(x), x))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_jitted": dict.fromkeys(self._jitted)}  # a copy has its own

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # so that isinstance is about the module inside
        return type(self._model)

    def functional_call(
        self, method_or_name: str | Callable[..., object], params: dict[str, torch.Tensor],
        buffers: dict[str, torch.Tensor], *args: Any, **kwargs: Any,
    ) -> TorchOutput:  # fmt: skip
        """Calls a method, or a function of the module, with these params and buffers.

        Args:
          method_or_name: "forward", another method's name, or ``function(module, *args)``.
          params, buffers: tensors on JAX by name, those of the module in the place of missing ones.
          *args: of the method.
          **kwargs: the same, by name.

        Example:
          >>> model = anyjax.torch.interop.JittableModule(torch.nn.Linear(3, 2, bias=False))
          >>> x, params = to_jax(torch.ones(1, 3)), {"weight": to_jax(torch.ones(2, 3))}
          >>> model.functional_call("forward", params, {}, x).tolist()
          [[3.0, 3.0]]
        """
        if isinstance(method_or_name, str):
            method = getattr(self._model, method_or_name)
        else:
            method = functools.partial(method_or_name, self._model)
        tensors = {f"model.{name}": x for name, x in (params | buffers).items()}
        return torch.func.functional_call(_Method(self._model, method), tensors, args, kwargs)

    def make_jitted(self, key: str) -> None:
        """Compiles the method of this name from now on, once for each kind of call.

        Example:
          >>> class Parts(torch.nn.Module):
          ...     def encode(self, x):
          ...         return x / 2
          >>> model = anyjax.torch.interop.JittableModule(Parts())
          >>> model.make_jitted("encode")
          >>> model.encode(to_jax(torch.ones(2))).tolist()
          [0.5, 0.5]
        """
        programs: dict[Any, Callable[..., Any]] = {}

        def call(*args: PyTree, **kwargs: PyTree) -> Any:
            tensors, numbers = _leaves(self._model)
            owners = _owners(tensors)
            specs = {name: tensors[name].spec for name in owners}
            program = numbers, tuple(owners.items()), tuple(specs.values())
            if program not in programs:
                function = functools.partial(_run, self._model, key, owners)
                programs[program] = jax_jit(function, self._options)
            inputs = {
                name: _owner(x) if name in owners else x
                for name, x in tensors.items()
                if owners.get(name, name) == name
            }
            is_parameter = lambda name: isinstance(tensors[name], torch.nn.Parameter)
            params = {name: x for name, x in inputs.items() if is_parameter(name)}
            buffers = {name: x for name, x in inputs.items() if not is_parameter(name)}
            out, written, assigned = programs[program](params, buffers, *args, **kwargs)
            for name, tensor in written.items():
                inputs[name].array = tensor.array
            if assigned:
                _walk(self._model, lambda name, x: assigned.get(name, x))
            return out

        self._jitted[key] = call

    def jittable_call(self, method_name: str, *args: Any, **kwargs: Any) -> TorchOutput:
        """Calls a method as a compiled program.

        Example:
          >>> model = anyjax.torch.interop.JittableModule(torch.nn.Linear(3, 2))
          >>> model.jittable_call("forward", to_jax(torch.ones(4, 3))).shape
          torch.Size([4, 2])
        """
        if (jitted := self._jitted.get(method_name)) is None:
            self.make_jitted(method_name)
            jitted = self._jitted[method_name]
        assert jitted is not None
        return jitted(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> TorchOutput:
        """Calls the module's forward as a compiled program; the module itself is called so.

        Example:
          >>> model = anyjax.torch.interop.JittableModule(torch.nn.Linear(3, 2))
          >>> model.forward(to_jax(torch.ones(4, 3))).shape
          torch.Size([4, 2])
        """
        return self.jittable_call("forward", *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> TorchOutput:
        return self.forward(*args, **kwargs)

    def __getattr__(self, key: str) -> Any:
        if key == "_model":
            return self.__dict__["_modules"][key]
        if key in self.__dict__.get("_jitted", ()):
            return functools.partial(self.jittable_call, key)
        return getattr(self._model, key)


def _walk(module: torch.nn.Module, leaf: Callable[[str, Any], Any]) -> None:
    """Puts ``leaf(name, x)`` in the place of tensors, numbers and None in a module."""
    Walk(leaf, lambda *_: None)("", module)


def _leaves(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], tuple]:
    """Returns (the tensors in a module by name, each once, its numbers as a key)."""
    tensors: dict[int, tuple[str, torch.Tensor]] = {}
    numbers: list[Any] = []

    def leaf(name: str, x: PyTree) -> Any:
        if isinstance(x, torch.Tensor):
            tensors.setdefault(id(x), (name, x))
        else:
            numbers.append((name, type(x), x))
        return x

    _walk(module, leaf)
    return dict(tensors.values()), tuple(numbers)


def _owners(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """Returns, for tensors that lie in one memory, the name of the first in it."""
    first: dict[int, str] = {}
    owners = {name: first.setdefault(id(x.memory), name) for name, x in tensors.items()}
    counts = Counter(owners.values())
    return {name: owner for name, owner in owners.items() if counts[owner] > 1}


def _owner(tensor: EagerTensor) -> EagerTensor:
    """Returns what a tensor is a view of."""
    return in_memory(tensor.spec.owner or tensor.spec, tensor.memory)


def _run(
    module: torch.nn.Module, method: str, owners: dict[str, str],
    params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor],
    *args: PyTree, **kwargs: PyTree,
) -> Any:  # fmt: skip
    """Returns (a method's result with these tensors, those in the module that it wrote to, those
    that it put into the module).

    Tensors that have an owner are views in its memory, as outside.
    """
    inputs, (tensors, _) = params | buffers, _leaves(module)
    arrays = {name: x.jax() for name, x in inputs.items()}
    views = {
        name: in_memory(tensors[name].spec, inputs[owner].memory, type(tensors[name]))
        for name, owner in owners.items()
    }
    used = inputs | views
    by_id = {id(x): used[name] for name, x in tensors.items()}
    back = {id(used[name]): x for name, x in tensors.items()}
    _walk(module, lambda _, x: by_id.get(id(x), x))
    try:
        out = getattr(module, method)(*args, **kwargs)
        leaves, _ = _leaves(module)
    finally:
        _walk(module, lambda name, x: tensors.get(name, back.get(id(x), x)))
    written = {n: x for n, x in inputs.items() if x.jax() is not arrays[n]}
    return out, written, {n: x for n, x in leaves.items() if id(x) not in back}


def move(module: torch.nn.Module) -> None:
    """Moves all tensors in a module to JAX, attributes and those in lists among them."""
    moved = _moved(_leaves(module)[0])
    _walk(module, lambda _, x: moved.get(id(x), x))


def _moved(tensors: dict[str, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Returns tensors on JAX by the ids of these; those in one memory are so again."""
    moved = {id(x): to_jax(x) for x in tensors.values()}
    memories: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    outside = {name: x for name, x in tensors.items() if not isinstance(x, EagerTensor)}
    for name in overlapping(outside):
        tensor = tensors[name]
        storage = tensor.untyped_storage()
        place = storage.data_ptr(), tensor.dtype
        if place not in memories:
            memories[place] = to_jax(tensor.detach().new_empty(0).set_(storage))
        layout = tensor.shape, tensor.stride(), tensor.storage_offset()
        moved[id(tensor)] = memories[place].as_strided(*layout).as_leaf_like(tensor)
    return moved
