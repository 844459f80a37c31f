"""What tensors of a trace say of themselves: ``requires_grad``, ``is_leaf``, ``grad_fn``, and
whether they are parameters; and what changes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import torch

from tojax.errors import Unsupported
from tojax.torch.aliasing.no_grad import with_gradient_of
from tojax.torch.core import current_trace, diagnostics, private
from tojax.torch.core.lifting import array_of, inner
from tojax.torch.core.tensor import GRADIENT, JaxTensor, differentiable, needs_gradient


class Node:
    """What ``grad_fn`` gives: that there is one."""

    next_functions: tuple = ()

    def name(self) -> str:
        """The name of no operator."""
        return "TracedBackward"

    def register_hook(self, hook: Any) -> Any:
        """A hook of one operator in torch's graph."""
        raise Unsupported(
            "a hook of grad_fn (module.register_backward_hook sets one)",
            where=diagnostics.where(),
            why="torch's graph of operators does not exist in a JAX program",
            do="register it with tensor.register_hook or module.register_full_backward_hook",
        )

    register_prehook = register_hook


def traced(tensor: Any) -> JaxTensor | None:
    """What a tensor of torch code holds, None where torch itself can answer for it."""
    if not isinstance(tensor, torch.Tensor) or not private.is_functional(tensor):
        return None
    held = inner(tensor)
    return held if isinstance(held, JaxTensor) else None


def answered(answer: Callable[[JaxTensor], Any]) -> Callable:
    """An attribute; of tensors from outside, and constants, torch knows it."""

    def attribute(mode, func, args, kwargs) -> Any:
        held = traced(args[0])
        return func(args[0]) if held is None else answer(held)

    return attribute


def leaf(held: JaxTensor) -> bool:
    """Whether no operator made it, as far as torch's autograd knows."""
    held = held.unhooked
    return not needs_gradient(held) or (held.holder is not None and not held.retained)


def require(mode, func, args, kwargs) -> Any:
    """``x.requires_grad_()`` and ``x.requires_grad = ...``."""
    tensor, wanted = args[0], (*args[1:], *kwargs.values(), True)[0]
    held = traced(tensor)
    constant = private.is_functional(tensor) and not tensor.is_meta
    if held is None and not (constant and wanted and differentiable(tensor.dtype)):
        return NotImplemented
    if wanted and not differentiable(tensor.dtype):
        return NotImplemented  # torch raises
    if held is None or needs_gradient(held) != wanted:
        set_requires_grad(tensor, wanted)
    elif wanted and held.unhooked.holder is None:
        made_of_an_input(tensor, held)
    return tensor


def set_requires_grad(tensor: torch.Tensor, wanted: bool) -> None:
    """Gives a functional tensor another value of its own, with or without gradient."""
    held = inner(tensor)
    if isinstance(held, JaxTensor) and held.required is not None:
        private.replace(tensor, held.required)
        return
    if isinstance(held, JaxTensor) and not wanted and not leaf(held):
        raise RuntimeError("you can only change requires_grad flags of leaf variables.")
    if not wanted:
        new = held.detached()
        new.required = held
    else:
        traced = isinstance(held, JaxTensor)
        new = held.alone() if traced else JaxTensor(array_of(held), held.dtype)
        new.origins |= GRADIENT
        hold(new, tensor)
    private.replace(tensor, new)


def made_of_an_input(tensor: torch.Tensor, held: JaxTensor) -> None:
    """What code takes for a leaf, as torch would if the input required no gradient: ``.grad`` is
    there all the same, and its array is no other tensor's.
    """
    new = held.alone()
    new.array, new.retained = jax.numpy.copy(held.array), True
    if (tape := current_trace.trace().tape) is not None:
        tape.note(lambda array: [jax.numpy.copy(array)], [held], [new])
    hold(new, tensor)
    private.replace(tensor, new)


def hold(held: JaxTensor, tensor: torch.Tensor) -> None:
    """The functional tensor gets the gradient of what it holds now in ``.grad``."""
    held.holder = weakref.ref(tensor)
    if (tape := current_trace.trace().tape) is not None:
        tape.held.append(held)


def set_data(mode, func, args, kwargs) -> Any:
    """``x.data = y``: another value, whose gradient is that of ``x``; what shared memory with it
    keeps the old one.
    """
    tensor, value = args
    held = traced(tensor)
    if held is None or not needs_gradient(held) or not isinstance(value, torch.Tensor):
        return NotImplemented
    if held.shape != value.shape or held.dtype != value.dtype:
        return NotImplemented
    array = array_of(value)
    new = held.alone()
    new.array = with_gradient_of(held.array, array)
    if (tape := current_trace.trace().tape) is not None:
        tape.note(lambda before: [with_gradient_of(before, array)], [held], [new])
    if held.holder is not None:
        hold(new, tensor)
    private.replace(tensor, new)
    return None


def detach_(mode, func, args, kwargs) -> Any:
    """``x.detach_()``."""
    held = traced(args[0])
    if held is None:
        return NotImplemented
    private.replace(args[0], held.detached())
    return args[0]


def retain_grad(mode, func, args, kwargs) -> Any:
    """``x.retain_grad()``."""
    held = traced(args[0])
    if held is None or not needs_gradient(held):
        return NotImplemented  # torch raises
    if held.holder is None:
        held.retained = True
        hold(held, args[0])
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
            if (before := own.get(name)) is None:
                continue
            if is_parameter(before) or isinstance(before, torch.nn.Parameter):
                named_parameter(tensor)
            held: Any = inner(tensor)
            if before.requires_grad and differentiable(held.dtype):
                held.origins |= GRADIENT
                hold(held, tensor)


def ask_for_gradients(tensors: Iterable[torch.Tensor]) -> None:
    """Inputs of floats require a gradient, as a torch user's do who asks for it: JAX may, from
    outside of the trace, at any time.
    """
    for tensor in tensors:
        held: Any = inner(tensor)
        if isinstance(held, JaxTensor) and differentiable(held.dtype):
            held.origins |= GRADIENT
            hold(held, tensor)


def is_parameter(tensor: torch.Tensor) -> bool:
    """Whether it is an instance of ``nn.Parameter`` for whoever asks."""
    return getattr(tensor, private.IS_PARAMETER, False)


def named_parameter(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, an instance of ``nn.Parameter`` for whoever asks."""
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
    """One of these."""
    return ANSWERS[func](mode, func, args, kwargs)
