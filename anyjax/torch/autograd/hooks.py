"""Hooks that change gradients: of tensors, and full backward hooks of modules.

The gradient that JAX takes, after the trace, goes through them too: they are custom gradients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

from anyjax.errors import Unsupported
from anyjax.torch.autograd.custom_function import drawing_from
from anyjax.torch.autograd.requires_grad import traced
from anyjax.torch.autograd.tape import hoisted
from anyjax.torch.autograd.tape_slice import Part
from anyjax.torch.core import current_trace, diagnostics, private
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.tensor import JaxTensor, needs_gradient

if TYPE_CHECKING:
    from jaxtyping import PyTree


class Hooked(torch.autograd.Function):
    """The tensor itself; ``hooks`` see its gradient and may give another."""

    @staticmethod
    def forward(ctx, tensor, hooks):
        ctx.hooks = hooks
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, grad):
        for hook in [*ctx.hooks.values()]:
            new = hook(grad)
            grad = grad if new is None else new
        return grad, None


def hooked(tensor: torch.Tensor, hooks: dict[int, Callable]) -> None:
    """From now on the gradient of a functional tensor goes through ``hooks``."""
    jax_tensor = inner(tensor)
    new = inner(Hooked.apply(tensor, hooks))
    new.before_hooks = jax_tensor.unhooked
    private.replace(tensor, new)


def register_hook(mode, func, args, kwargs) -> Any:
    """``x.register_hook(hook)``."""
    tensor, hook = args if len(args) == 2 else (args[0], kwargs["hook"])
    jax_tensor = traced(tensor)
    if jax_tensor is None:
        return NotImplemented
    tape = mode.trace.recording()
    if not needs_gradient(jax_tensor):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if any(x is jax_tensor for entry in tape for x in entry.ins):
        raise Unsupported(
            "a hook on a tensor that was used already",
            where=diagnostics.where(),
            why="it would see the gradient of later uses only",
            do="register the hook right after the tensor is made, before it is used",
        )
    hooks: OrderedDict[int, Callable] = OrderedDict()
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    with mode:
        hooked(tensor, hooks)
    return handle


class BackwardHook:
    """Stands for torch's own, between a module and its arguments and results."""

    def __init__(self, module: torch.nn.Module, hooks: Any, before: Any):
        self.module, self.hooks, self.before = module, [*hooks], [*before]
        self.trace = current_trace.trace()
        self.tape = self.trace.recording()
        self.args: list[Any] = []
        self.inputs: dict[int, JaxTensor] = {}

    def setup_input_hook(self, args: tuple) -> tuple:
        """Returns the arguments, from where on what the module computes is followed."""
        jax_tensors = [traced(x) for x in args]
        self.args = [None if x is None else np.zeros(x.shape, x.array.dtype) for x in jax_tensors]
        self.inputs = {i: t for i, x in enumerate(args) if (t := self.follow(x)) is not None}
        new = [lift(self.inputs[i]) if i in self.inputs else x for i, x in enumerate(args)]
        return tuple(new) if type(args) is tuple else type(args)(*new)

    def follow(self, value: object) -> JaxTensor | None:
        """Returns a tensor of its own with the same value, if that needs a gradient."""
        jax_tensor = traced(value)
        if jax_tensor is None or not needs_gradient(jax_tensor) or not torch.is_grad_enabled():
            return None
        new = jax_tensor.alone()
        self.tape.note(lambda array: [array], [jax_tensor], [new])
        return new

    def setup_output_hook(self, args: PyTree) -> Any:
        """Returns the results, whose gradients go through the hooks."""
        outs = list(args) if isinstance(args, (tuple, list)) else [args]
        jax_tensors = {i: traced(x) for i, x in enumerate(outs)}
        differentiated = {
            i: x for i, x in jax_tensors.items() if x is not None and needs_gradient(x)
        }
        places = [*differentiated]
        if not places or not torch.is_grad_enabled():
            return args
        tape_slice = Part(self.tape, [*differentiated.values()], [*self.inputs.values()])
        operands = [*tape_slice.inputs, *tape_slice.free] if self.inputs else tape_slice.outputs
        count = len(tape_slice.inputs)
        run = (lambda *a: tape_slice(a[:count], a[count:])) if self.inputs else lambda *a: [*a]
        arrays = [x.array for x in operands]
        closed = jax.make_jaxpr(run)(*arrays)
        function = self.function(hoisted(closed), len(closed.consts), places, outs)
        fixed = closed.consts
        jax_tensors = function(*fixed, *arrays)
        for i, array in zip(places, jax_tensors):
            new = differentiated[i].alone()
            new.array = array
            outs[i] = lift(new)
        forward = lambda *arrays: function(*fixed, *arrays)
        self.tape.note(forward, operands, [inner(outs[i]) for i in places])
        if not isinstance(args, (tuple, list)):
            return outs[0]
        return type(args)(outs) if type(args) in (tuple, list) else type(args)(*outs)

    def function(self, run: Callable, count: int, places: list[int], outs: list) -> Callable:
        """``run`` with the gradients that the hooks give. The program keeps it, but nothing of the
        trace.
        """
        function, new_trace = jax.custom_vjp(run), self.trace.again
        module, before, hooks, tensors = self.module, self.before, self.hooks, self.tensors
        inputs, out_count, arg_count = [*self.inputs], len(outs), len(self.args)
        zeros = {i: x for i, x in enumerate(self.args) if x is not None and self.inputs}

        def bwd(arrays, cotangents):
            with drawing_from(new_trace, None):
                grad_outputs = tensors(dict(zip(places, cotangents)), out_count)
                for hook in before:
                    new = hook(module, grad_outputs)
                    grad_outputs = (
                        grad_outputs if new is None else new if isinstance(new, tuple) else (new,)
                    )
                back = [
                    array_of(grad_outputs[i]).astype(c.dtype) for i, c in zip(places, cotangents)
                ]
                grads = [*jax.vjp(run, *arrays)[1](back)]
                arrays = {i: jax.numpy.asarray(x) for i, x in zeros.items()}
                arrays |= dict(zip(inputs, grads[count:]))
                grad_inputs = tensors(arrays, arg_count)
                for hook in hooks:
                    new = hook(module, grad_inputs, grad_outputs)
                    grad_inputs = (
                        grad_inputs if new is None else new if isinstance(new, tuple) else (new,)
                    )
                for place, i in enumerate(inputs, count):
                    grads[place] = array_of(grad_inputs[i]).astype(grads[place].dtype)
            return tuple(grads)

        function.defvjp(lambda *arrays: (run(*arrays), arrays), bwd)
        return function

    @staticmethod
    def tensors(arrays: dict[int, jax.Array], count: int) -> tuple:
        """Tensors where there is an array, None elsewhere."""
        return tuple(lift(JaxTensor(arrays[i])) if i in arrays else None for i in range(count))


def of_parameters(own: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> None:
    """Hooks that the user's tensors had before, on those of the trace in their place."""
    with private.DisableTorchFunction():
        hooks = {k: own[k]._backward_hooks for k in tensors if k in own}
    for name, parameter_hooks in hooks.items():
        if parameter_hooks and needs_gradient(inner(tensors[name])):
            hooked(tensors[name], parameter_hooks)
