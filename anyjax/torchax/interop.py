"""Values and functions that cross over between torch and JAX, by torchax's names.

They are those of ``anyjax.torch.interop``, with tensors of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import torch
from jax import shard_map as shard_map

from anyjax.torch import interop
from anyjax.torch.eager import jittable
from anyjax.torch.eager.tensor import keeping_class, made_as
from anyjax.torchax.tensor import Tensor
from anyjax.typing import PyTree

with made_as(Tensor):
    call_jax = keeping_class(interop.call_jax)
    call_torch = keeping_class(interop.call_torch)
    gradient_checkpoint = keeping_class(interop.gradient_checkpoint)
    jax_jit = keeping_class(interop.jax_jit)
    jax_shard_map = keeping_class(interop.jax_shard_map)
    jax_value_and_grad = keeping_class(interop.jax_value_and_grad)
    jax_view = keeping_class(interop.jax_view)
    jax_view_elem = keeping_class(interop.jax_view_elem)
    torch_view = keeping_class(interop.torch_view)
    torch_view_elem = keeping_class(interop.torch_view_elem)
    wrap_jax_jit = keeping_class(interop.wrap_jax_jit)
fori_loop = torch_view(jax.lax.fori_loop)


def j2t_autograd(
    fn: Callable[..., PyTree], call_jax: Callable[..., PyTree] = call_jax
) -> Callable[..., Any]:
    """Returns a function of JAX as one of tensors, with JAX's gradients for torch's autograd.

    Args:
      fn: takes and returns any pytrees of arrays.
      call_jax: there is no other here than ``call_jax``.
    """
    default = globals()["call_jax"]
    with made_as(Tensor):
        call_jax = interop.call_jax if call_jax is default else call_jax
        return keeping_class(interop.j2t_autograd(fn, call_jax))


class JittableModule(jittable.JittableModule):
    """A module whose methods run as compiled programs; see ``anyjax.torch.interop``.

    The module inside is ``m`` itself, moved to JAX. A tensor that is set in the dicts ``params``
    and ``buffers`` is the module's from the next call on. ``params`` are those that are trained;
    ``buffers`` all other tensors, attributes among them.

    Example:
      >>> module = JittableModule(torch.nn.Linear(3, 2))
      >>> module(torch_view(jax.numpy.ones((4, 3)))).shape, sorted(module.params)
      (torch.Size([4, 2]), ['bias', 'weight'])
    """

    def __init__(
        self, m: torch.nn.Module, extra_jit_args: Mapping[str, object] | None = None,
        dedup_parameters: bool = True,
    ):  # fmt: skip
        with made_as(Tensor):
            super().__init__(m, extra_jit_args, dedup_parameters)

    @staticmethod
    def _placed(module: torch.nn.Module) -> torch.nn.Module:
        """Returns the module, whose tensors are moved to JAX."""
        jittable.move(module)
        return module

    @property
    def params(self) -> dict[str, torch.Tensor]:
        return self._listed("params")

    @params.setter
    def params(self, new: Mapping[str, torch.Tensor]) -> None:
        self._replace(self.params, new)

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        return self._listed("buffers")

    @buffers.setter
    def buffers(self, new: Mapping[str, torch.Tensor]) -> None:
        self._replace(self.buffers, new)

    def _listed(self, kind: str) -> dict[str, torch.Tensor]:
        """Returns the dict that users write to, with the tensors of the module."""
        lists = self.__dict__.setdefault("listings", {})
        listed, _ = lists.setdefault(kind, ({}, {}))
        self._take_writes()
        listed.clear()
        params, buffers = tensors_of(self._model, self._tied["remove_duplicate"])
        listed.update(params if kind == "params" else buffers)
        lists[kind] = listed, dict(listed)
        return listed

    def _take_writes(self) -> None:
        """Puts into the module what users have set in the dicts."""
        for kind, (listed, seen) in self.__dict__.get("listings", {}).items():
            new = {name: x for name, x in listed.items() if name in seen and x is not seen[name]}
            if new:
                self._replace({name: seen[name] for name in new}, new)
                self.listings[kind] = listed, dict(listed)

    def functional_call(self, *args: Any, **kwargs: Any) -> Any:
        """Calls a method with other tensors, as a function that JAX can transform."""
        with made_as(Tensor):
            return super().functional_call(*args, **kwargs)

    def jittable_call(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a method as a compiled program."""
        self._take_writes()
        with made_as(Tensor):
            return super().jittable_call(method_name, *args, **kwargs)


def tensors_of(
    module: torch.nn.Module, once: bool
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns what ``extract_all_buffers`` does; tied parameters by one name, where ``once``."""
    params, buffers = extract_all_buffers(module)
    names = {id(x): name for name, x in reversed(params.items())}
    return {k: x for k, x in params.items() if not once or names[id(x)] == k}, buffers


def extract_all_buffers(
    m: torch.nn.Module,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns (trained parameters, all other tensors) by name, attributes among them."""
    params: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    for path, module in m.named_modules(remove_duplicate=False):
        for name, x in _tensors(module).items():
            trained = isinstance(x, torch.nn.Parameter) and x.requires_grad
            (params if trained else buffers)[f"{path}.{name}" if path else name] = x
    return params, buffers


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the tensors that a module has itself."""
    values = {**module._parameters, **module._buffers, **vars(module)}
    return {name: x for name, x in values.items() if isinstance(x, torch.Tensor)}


def set_all_buffers(
    m: torch.nn.Module, params: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor]
) -> None:
    """Puts tensors into a module by name; those of ``params`` as parameters."""
    for path, module in m.named_modules(remove_duplicate=False):
        for name in _tensors(module):
            full = f"{path}.{name}" if path else name
            if full in buffers:
                setattr(module, name, buffers[full])
            elif full in params:
                setattr(module, name, torch.nn.Parameter(params[full]))
