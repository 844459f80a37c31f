"""Flax modules as torch modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from anyjax.torchax import interop
from anyjax.torchax.tensor import Environment, Tensor


class FlaxNNModule(torch.nn.Module):
    """A Linen module as a torch module, whose parameters have the names of Flax.

    Args:
      env: the environment, whose key the parameters are drawn from.
      flax_module: a ``flax.linen.Module``.
      sample_args, sample_kwargs: arguments of a call, tensors or arrays.
    """

    def __init__(
        self, env: Environment, flax_module: Any, sample_args: Sequence[Any],
        sample_kwargs: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        super().__init__()
        key, options = env.prng_key, sample_kwargs or {}
        init = lambda *args, **kwargs: flax_module.init(key, *args, **kwargs)
        self._params = _nested(interop.call_jax(init, *sample_args, **options))
        self._flax_module = flax_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return interop.call_jax(self._flax_module.apply, _values(self._params), *args, **kwargs)


def _nested(tensors: Mapping[str, Any]) -> torch.nn.Module:
    """Returns a module of parameters and modules by name."""
    module = torch.nn.Module()
    for name, x in tensors.items():
        if isinstance(x, Tensor):
            module.register_parameter(name, torch.nn.Parameter(x, x.is_floating_point()))
        else:
            module.add_module(name, _nested(x))
    return module


def _values(module: torch.nn.Module) -> dict[str, Any]:
    children = {name: _values(child) for name, child in module.named_children()}
    return dict(module.named_parameters(recurse=False)) | children
