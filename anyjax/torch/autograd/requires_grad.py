"""``requires_grad``, ``is_leaf``, ``grad_fn`` of tensors of a trace, whether they are parameters,
and the calls that change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import torch

from anyjax.errors import Unsupported
from anyjax.torch.aliasing.leaves import hold, set_array
from anyjax.torch.core import current_trace, diagnostics, private
from anyjax.torch.core.lifting import array_of, inner, put
from anyjax.torch.core.tensor import GRADIENT, JaxTensor, differentiable, needs_gradient


class Node:
    """A ``grad_fn``, which only tells that there is one."""

    next_functions: tuple = ()

    def name(self) -> str:
        return "TracedBackward"

    def register_hook(self, hook: object) -> Any:
        """A hook of one operator in torch's graph."""
        raise Unsupported(
            "a hook of grad_fn (module.register_backward_hook sets one)",
            where=diagnostics.where(),
            why="torch's graph of operators does not exist in a JAX program",
            do="register it with tensor.register_hook or module.register_full_backward_hook",
        )

    register_prehook = register_hook


def traced(tensor: torch.Tensor) -> JaxTensor | None:
    """Returns the JaxTensor inside a tensor, None where torch itself can answer for it."""
    if not isinstance(tensor, torch.Tensor) or not private.is_functional(tensor):
        return None
    value = inner(tensor)
    return value if isinstance(value, JaxTensor) else None


def answered(answer: Callable[[JaxTensor], object]) -> Callable:
    """Returns an attribute; of tensors from outside, and constants, torch knows it."""

    def attribute(mode, func, args, kwargs) -> Any:
        jax_tensor = traced(args[0])
        return func(args[0]) if jax_tensor is None else answer(jax_tensor)

    return attribute


def leaf(jax_tensor: JaxTensor) -> bool:
    """Returns whether no operator made it, as far as torch's autograd knows."""
    jax_tensor = jax_tensor.unhooked
    return not needs_gradient(jax_tensor) or (
        jax_tensor.holder is not None and not jax_tensor.retained
    )


def require(mode, func, args, kwargs) -> Any:
    """``x.requires_grad_()`` and ``x.requires_grad = ...``."""
    tensor, required = args[0], (*args[1:], *kwargs.values(), True)[0]
    jax_tensor = traced(tensor)
    constant = private.is_functional(tensor) and not tensor.is_meta
    if jax_tensor is None and not (constant and required and differentiable(tensor.dtype)):
        return NotImplemented
    if required and not differentiable(tensor.dtype):
        return NotImplemented  # torch raises
    if jax_tensor is None or needs_gradient(jax_tensor) != required:
        set_requires_grad(tensor, required)
    elif required and jax_tensor.unhooked.holder is None:
        made_of_an_input(tensor, jax_tensor)
    return tensor


def set_requires_grad(tensor: torch.Tensor, required: bool) -> None:
    """Gives a functional tensor another value of its own, with or without gradient."""
    value = inner(tensor)
    if isinstance(value, JaxTensor) and value.required is not None:
        put(tensor, value.required)
        return
    if isinstance(value, JaxTensor) and not required and not leaf(value):
        raise RuntimeError("you can only change requires_grad flags of leaf variables.")
    if not required:
        new = value.detached()
        new.required = value
    else:
        traced = isinstance(value, JaxTensor)
        new = value.alone() if traced else JaxTensor(array_of(value), value.dtype)
        new.origins |= GRADIENT
        hold(new, tensor)
    put(tensor, new)


def made_of_an_input(tensor: torch.Tensor, jax_tensor: JaxTensor) -> None:
    """Makes a leaf of an input, as torch has it where the input requires no gradient: it gets a
    ``.grad`` of its own, and its array is no other tensor's.
    """
    new = jax_tensor.alone()
    new.array, new.retained = jax.numpy.copy(jax_tensor.array), True
    if (tape := current_trace.trace().tape) is not None:
        tape.note(lambda array: [jax.numpy.copy(array)], [jax_tensor], [new])
    hold(new, tensor)
    put(tensor, new)


def set_data(mode, func, args, kwargs) -> Any:
    """``x.data = y``: another value, whose gradient is that of ``x``; what shared memory with it
    keeps the old one.
    """
    tensor, value = args
    jax_tensor = traced(tensor)
    if jax_tensor is None or not needs_gradient(jax_tensor) or not isinstance(value, torch.Tensor):
        return NotImplemented
    if jax_tensor.shape != value.shape or jax_tensor.dtype != value.dtype:
        return NotImplemented
    set_array(tensor, array_of(value))
    return None


def detach_(mode, func, args, kwargs) -> Any:
    """``x.detach_()``."""
    jax_tensor = traced(args[0])
    if jax_tensor is None:
        return NotImplemented
    put(args[0], jax_tensor.detached())
    return args[0]


def retain_grad(mode, func, args, kwargs) -> Any:
    """``x.retain_grad()``."""
    jax_tensor = traced(args[0])
    if jax_tensor is None or not needs_gradient(jax_tensor):
        return NotImplemented  # torch raises
    if jax_tensor.holder is None:
        jax_tensor.retained = True
        hold(jax_tensor, args[0])
    return None


def parameter(original, cls, data=None, requires_grad=True) -> Any:
    """``nn.Parameter(data)``: what counts as one for torch, without a class of its own."""
    if cls is not torch.nn.Parameter or data is None or not private.is_functional(data):
        return original(cls, data, requires_grad)
    new = data.detach()
    new.requires_grad_(requires_grad)
    return named_parameter(new)


def as_they_were(own: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> None:
    """Tensors of a trace say of themselves what the user's, in whose place they are, say."""
    with private.DisableTorchFunction():
        for name, tensor in tensors.items():
            if (original := own.get(name)) is None:
                continue
            if is_parameter(original) or isinstance(original, torch.nn.Parameter):
                named_parameter(tensor)
            value: Any = inner(tensor)
            if original.requires_grad and differentiable(value.dtype):
                value.origins |= GRADIENT
                hold(value, tensor)


def ask_for_gradients(tensors: Iterable[torch.Tensor]) -> None:
    """Inputs of floats require a gradient, as a torch user's do who asks for it: JAX may, from
    outside of the trace, at any time.
    """
    for tensor in tensors:
        value: Any = inner(tensor)
        if isinstance(value, JaxTensor) and differentiable(value.dtype):
            value.origins |= GRADIENT
            hold(value, tensor)


def is_parameter(tensor: torch.Tensor) -> bool:
    """Returns whether it is an instance of ``nn.Parameter`` for whoever asks."""
    return getattr(tensor, private.IS_PARAMETER, False)


def named_parameter(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, an instance of ``nn.Parameter`` for whoever asks."""
    setattr(tensor, private.IS_PARAMETER, True)
    return tensor


ANSWERS = {
    torch.Tensor.requires_grad.__get__: answered(needs_gradient),
    torch.Tensor.requires_grad.__set__: require,
    torch.Tensor.requires_grad_: require,
    torch.Tensor.is_leaf.__get__: answered(leaf),
    torch.Tensor.grad_fn.__get__: answered(lambda held: None if leaf(held) else Node()),
    torch.Tensor.data.__set__: set_data,
    torch.Tensor.detach_: detach_,
    torch.detach_: detach_,
    torch.Tensor.retain_grad: retain_grad,
}


def serve(mode, func, args, kwargs) -> Any:
    """Answers a question about gradients."""
    return ANSWERS[func](mode, func, args, kwargs)
