"""Modes of an environment: they serve the device "jax", and functions that the user put in the
place of torch's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, Protocol

import jax
import torch
from torch.overrides import TorchFunctionMode

from anyjax.torch.core import current_trace, private
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.eager.environment import mapped
from anyjax.torch.eager.factories import Factories
from anyjax.torch.eager.functions import SERVED
from anyjax.torch.eager.moved import to_jax
from anyjax.torch.eager.tensor import KIND, EagerTensor
from anyjax.torch.eager.torch_jax_views import jax_view_elem
from anyjax.torch.jax_function import from_jax
from anyjax.torchax.config import Configuration
from anyjax.torchax.ops.ops_registry import Operator
from anyjax.typing import PyTree, TorchOutput


class Served(Protocol):
    """An environment, as its modes see it."""

    config: Configuration

    def find(self, func: object) -> Operator | None: ...
    def without(self, operator: Operator) -> contextlib.AbstractContextManager[None]: ...
    def j2t_iso(self, jaxarray: object) -> TorchOutput: ...
    def __enter__(self) -> object: ...
    def __exit__(self, *exception: object) -> None: ...


CPU = torch.device("cpu")
MOVES = {torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda, private.may_share_data}


def is_ours(device: object, cuda: bool = True) -> bool:
    """Returns whether tensors of this device are on JAX.

    Args:
      device: a name, a ``torch.device`` or None.
      cuda: whether those of "cuda" are.
    """
    if device is None:
        return False
    kind = device.type if isinstance(device, torch.device) else str(device).partition(":")[0]
    return kind in ("jax", "privateuseone") or (cuda and kind == "cuda")


class FunctionMode(TorchFunctionMode):
    """Sees functions of torch as they are called."""

    def __init__(self, env: Served):
        super().__init__()
        self.env = env

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, env = kwargs or {}, self.env
        if current_trace.active():
            return func(*args, **kwargs)
        if env.config.debug_print_each_op:
            _print(env, "FUNCTION", func, args, kwargs)
        if (operator := env.find(func)) is not None and _concerns(args, kwargs):
            return serve(env, operator, args, kwargs)
        if func in MOVES and (out := moved(func, args, kwargs)) is not NotImplemented:
            return out
        device = kwargs.get("device")
        if device is None and func in private.constructors():
            device = private.default_device()
        if is_ours(device, env.config.treat_cuda_as_jax_device):
            return on_device(func, args, kwargs)
        if func in SERVED and any(map(_is_tensor, flatten((args, kwargs))[0])):
            out = SERVED[func](*args, **kwargs)
            return func(*args, **kwargs) if out is None else out
        return func(*args, **kwargs)


class DispatchMode(private.TorchDispatchMode):
    """Sees operators as they are dispatched."""

    def __init__(self, env: Served):
        super().__init__()
        self.env = env

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that says so imports all of Dynamo

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs, env = kwargs or {}, self.env
        if current_trace.active():
            return op(*args, **kwargs)
        if env.config.debug_print_each_op:
            _print(env, "DISPATCH", op, args, kwargs)
        if any(issubclass(kind, EagerTensor) for kind in types):
            return (KIND.get() or EagerTensor).dispatched(op, args, kwargs)
        if is_ours(kwargs.get("device"), env.config.treat_cuda_as_jax_device):
            return on_device(op, args, kwargs)
        return op(*args, **kwargs)


def on_cpu(kwargs: dict[str, PyTree]) -> dict[str, Any]:
    """Returns the options without our device: to torch's C++ these tensors are on the CPU."""
    return kwargs | {"device": CPU} if is_ours(kwargs.get("device")) else kwargs


def on_device(func: Callable[..., PyTree], args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Calls what makes a tensor, on JAX."""
    args = tuple(to_jax(x) if isinstance(x, torch.Tensor) else x for x in args)
    with Factories():
        return func(*args, **kwargs | {"device": CPU})


def moved(func: Callable[..., PyTree], args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Serves what moves a tensor between JAX and torch's memory, and nothing else."""
    if func is torch.Tensor.cpu:
        return args[0].torch() if isinstance(args[0], EagerTensor) else NotImplemented
    if func is torch.Tensor.cuda:
        return to_jax(args[0])
    if func is private.may_share_data:  # a module asks that moves: those of two devices may not
        same = isinstance(args[0], EagerTensor) == isinstance(args[1], EagerTensor)
        return NotImplemented if same else False
    tensor, *rest = args
    likes = [x for x in (*rest, kwargs.get("other")) if isinstance(x, torch.Tensor)]
    names = [x for x in rest if isinstance(x, (str, torch.device, int)) and x not in (True, False)]
    device = likes[0].device if likes else kwargs.get("device", names[0] if names else None)
    dtypes = [x for x in rest if isinstance(x, torch.dtype)]
    dtype = likes[0].dtype if likes else kwargs.get("dtype", dtypes[0] if dtypes else None)
    options: dict[str, Any] = {"copy": kwargs.get("copy", False)}
    if is_ours(device):
        return _cast(to_jax(tensor), dtype, options)
    if isinstance(tensor, EagerTensor) and device is not None and torch.device(device) == CPU:
        return _cast(tensor.torch(), dtype, options)
    return NotImplemented if not likes else func(tensor, dtype, **options)


def _cast(tensor: torch.Tensor, dtype: torch.dtype | None, options: dict[str, Any]) -> torch.Tensor:
    return torch.Tensor.to(tensor, tensor.dtype if dtype is None else dtype, **options)


def serve(env: Served, operator: Operator, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Calls a function in the place of torch's, which is torch's again inside of it."""
    if operator.needs_env:
        kwargs = kwargs | {"env": env}
    with env.without(operator), env:
        if not operator.is_jax_function:
            return operator.func(*args, **kwargs)
        tensors = [x for x in flatten((args, kwargs))[0] if isinstance(x, EagerTensor)]
        traced = any(isinstance(x.jax(), jax.core.Tracer) for x in tensors)
        if torch.is_grad_enabled() and not traced and any(x.requires_grad for x in tensors):
            return from_jax(operator.func)(*args, **kwargs)
        args, kwargs = map_tensors(_array, (args, kwargs))
        return env.j2t_iso(operator.func(*args, **kwargs))


def _array(tensor: torch.Tensor) -> Any:
    is_number = not isinstance(tensor, EagerTensor) and tensor.dim() == 0
    return tensor.item() if is_number else jax_view_elem(tensor)


def _is_tensor(value: object) -> bool:
    return isinstance(value, EagerTensor)


def _concerns(args: tuple, kwargs: dict[str, PyTree]) -> bool:
    """Returns whether a call is one of tensors on JAX, or of none."""
    tensors = [x for x in flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    return not tensors or any(map(_is_tensor, tensors))


def _print(env: Served, kind: str, func: Any, args: tuple, kwargs: dict[str, PyTree]) -> None:
    operands = ""
    if env.config.debug_print_each_op_operands:
        shown = mapped(lambda x: f"{x.dtype}{[*x.shape]}", (args, kwargs))
        operands = f" {shown}"
    name = func.name() if hasattr(func, "name") else getattr(func, "__name__", func)
    print(f"{kind}: {name}{operands}", file=sys.stderr)
