"""Modules whose methods are compiled programs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from anyjax.torch.eager.crossing import jax_jit
from anyjax.torch.eager.moved import to_jax

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from anyjax.typing import TorchOutput


class _Method(torch.nn.Module):
    """A method of a module as the forward of another one."""

    def __init__(self, model: torch.nn.Module, function: Callable[..., PyTree]):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *args: PyTree, **kwargs: PyTree) -> Any:
        return self.function(*args, **kwargs)


class JittableModule(torch.nn.Module):
    """A module whose methods run as programs that ``jax.jit`` compiles, ``forward`` by itself.

    Buffers that a method writes to, such as BatchNorm's statistics, are written to in ``buffers``.
    torch's autograd does not see into a program; ``functional_call`` is for JAX's gradients.

    Attributes:
      params, buffers: tensors on JAX by name; tied parameters have one name.

    Args:
      m: the module.
      extra_jit_args: those of ``jax.jit``.
      dedup_parameters: whether tied parameters stay tied.

    Example:
      >>> import torch
      >>> model = JittableModule(torch.nn.Linear(3, 2))
      >>> model(to_jax(torch.ones(4, 3))).shape
      torch.Size([4, 2])
    """

    _model: torch.nn.Module  # no submodule: its weights are in params and buffers

    def __init__(
        self, m: torch.nn.Module, extra_jit_args: Mapping[str, object] | None = None,
        dedup_parameters: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.__dict__["_model"] = m
        self._options = extra_jit_args or {}
        self._jitted: dict[str, Callable[..., Any]] = {}
        tied = {"remove_duplicate": dedup_parameters}
        self.params: dict[str, torch.Tensor] = to_jax(dict(m.named_parameters(**tied)))
        self.buffers: dict[str, torch.Tensor] = to_jax(dict(m.named_buffers(**tied)))

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # so that isinstance is about the module inside
        return type(self._model)

    def functional_call(
        self, method_or_name: str | Callable[..., object], params: dict[str, torch.Tensor],
        buffers: dict[str, torch.Tensor], *args: Any, **kwargs: Any,
    ) -> TorchOutput:  # fmt: skip
        """Calls a method, or a function of the module, with these params and buffers."""
        if isinstance(method_or_name, str):
            method = getattr(self._model, method_or_name)
        else:
            method = functools.partial(method_or_name, self._model)
        tensors = {f"model.{name}": x for name, x in (params | buffers).items()}
        return torch.func.functional_call(_Method(self._model, method), tensors, args, kwargs)

    def make_jitted(self, key: str) -> None:
        """Compiles the method of this name from now on."""

        def method(params: PyTree, buffers: PyTree, *args: PyTree, **kwargs: PyTree) -> Any:
            return self.functional_call(key, params, buffers, *args, **kwargs), buffers

        jitted = jax_jit(method, self._options)

        def call(*args: PyTree, **kwargs: PyTree) -> Any:
            out, written = jitted(self.params, self.buffers, *args, **kwargs)
            for name, tensor in written.items():
                self.buffers[name].array = tensor.array
            return out

        self._jitted[key] = call

    def jittable_call(self, method_name: str, *args: Any, **kwargs: Any) -> TorchOutput:
        """Calls a method as a compiled program."""
        if method_name not in self._jitted:
            self.make_jitted(method_name)
        return self._jitted[method_name](*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> TorchOutput:
        """Calls the module's forward as a compiled program."""
        return self.jittable_call("forward", *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> TorchOutput:
        return self.forward(*args, **kwargs)

    def __getattr__(self, key: str) -> Any:
        jitted = self.__dict__.get("_jitted", {})
        return jitted[key] if key in jitted else getattr(self.__dict__["_model"], key)
