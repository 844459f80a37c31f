"""Hooks that change gradients: of tensors, and full backward hooks of modules.

The gradient that JAX takes, after the trace, goes through them too: they are custom gradients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import torch
from torch.utils.hooks import RemovableHandle

from anyjax.dtypes import is_float
from anyjax.errors import Unsupported
from anyjax.torch.autograd.custom_function import attempt, moving, zeros
from anyjax.torch.autograd.derivative import Rules, given
from anyjax.torch.autograd.derivative import traced as traced_rule
from anyjax.torch.autograd.requires_grad import traced
from anyjax.torch.autograd.tape import hoisted
from anyjax.torch.autograd.tape_slice import Part
from anyjax.torch.core import current_trace, diagnostics, private
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.tensor import JaxTensor, needs_gradient
from anyjax.typing import PyTree


class Hooked(torch.autograd.Function):
    """The tensor itself; ``hooks`` see its gradient and may give another."""

    @staticmethod
    def forward(ctx, tensor, hooks):
        ctx.hooks = [*hooks]
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, grad):
        for hook in ctx.hooks:
            new = hook(grad)
            grad = grad if new is None else new
        return grad, None


def hooked(tensor: torch.Tensor, hooks: Iterable[Callable]) -> None:
    """From now on the gradient of a functional tensor goes through ``hooks``."""
    jax_tensor = inner(tensor)
    new = inner(Hooked.apply(tensor, hooks))
    new.before_hooks = jax_tensor.unhooked
    private.replace(tensor, new)


class Handle(RemovableHandle):
    """A hook of a tensor, which can be removed as long as nothing was computed through it."""

    def __init__(self, tensor: torch.Tensor, tape: list):
        super().__init__(OrderedDict())
        self.tensor, self.tape = tensor, tape
        self.before = inner(tensor)

    def remove(self) -> None:
        """Removes the hook."""
        value = inner(self.tensor)
        if any(x is value for entry in self.tape for x in entry.ins):
            raise used("the removal of a hook from a tensor", "keep it, or let it return None")
        private.replace(self.tensor, self.before)


def used(what: str, do: str) -> Unsupported:
    """Returns the error for a change of hooks that comes too late."""
    return Unsupported(
        f"{what} that was used already",
        where=diagnostics.where(),
        why="it would see the gradient of later uses only",
        do=do,
    )


def register_hook(mode, func, args, kwargs) -> Any:
    """``x.register_hook(hook)``, and ``x.register_post_accumulate_grad_hook(hook)`` of a leaf."""
    tensor, hook = args if len(args) == 2 else (args[0], kwargs["hook"])
    jax_tensor = traced(tensor)
    if jax_tensor is None:
        return NotImplemented
    tape = mode.trace.recording()
    if not needs_gradient(jax_tensor):
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if any(x is jax_tensor for entry in tape for x in entry.ins):
        do = "register the hook right after the tensor is made, before it is used"
        raise used("a hook on a tensor", do)
    if func is torch.Tensor.register_post_accumulate_grad_hook:
        hook = accumulated(tensor, hook)
    handle = Handle(tensor, tape)
    with mode:
        hooked(tensor, [hook])
    return handle


def accumulated(tensor: torch.Tensor, hook: Callable) -> Callable:
    """Returns a hook on a leaf whose gradient is in ``.grad`` as one on the gradient.

    Raises:
      Unsupported: it writes to the leaf itself, or leaves no gradient, as optimizers do that step
        during the backward pass.
    """

    def change(grad: torch.Tensor) -> torch.Tensor:
        leaf = lift(inner(tensor).alone())
        leaf.grad = grad
        with torch.no_grad():
            hook(leaf)
        if leaf.grad is None or array_of(leaf) is not array_of(tensor):
            raise Unsupported(
                "a hook after the accumulation of a gradient that changes more than the gradient",
                where=diagnostics.where(),
                why="JAX's gradients are results: there is no moment at which weights are written",
                do="remove the hook, and update the params with what jax.grad returns",
            )
        return leaf.grad

    return change


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
        self.args = [traced(x) for x in args]
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
        closed = jax.make_jaxpr(run)(*(x.array for x in operands))
        fixed = [x for x in closed.consts if is_float(x.dtype)]
        arrays = [*(x.array for x in operands), *fixed, *(x.array for x in differentiated.values())]
        counts = len(operands) + len(fixed), len(places)

        def again(*floats: jax.Array) -> list[jax.Array]:
            rest = iter(floats[len(operands) :])
            consts = [next(rest) if is_float(x.dtype) else x for x in closed.consts]
            return hoisted(closed)(*consts, *floats[: len(operands)])

        pull = partial(self.pull, again, arrays[: counts[0]], outs, places)
        specs = [jax.typeof(x) for x in arrays[counts[0] :]]
        back = lambda: {(True,) * len(places): traced_rule(pull, specs, arrays)}
        name = f"the backward hook of {type(self.module).__name__}"
        rules = Rules(counts, attempt(name, back), None, name)
        function = lambda *of: given([*of, *arrays[len(of) :]], rules)
        for i, array in zip(places, function()):
            new = differentiated[i].alone()
            new.array = array
            outs[i] = lift(new)
        self.tape.note(function, operands, [inner(outs[i]) for i in places])
        if not isinstance(args, (tuple, list)):
            return outs[0]
        return type(args)(outs) if type(args) in (tuple, list) else type(args)(*outs)

    def pull(self, run: Callable, arrays: list, outs: list, places: list[int], *cotangents) -> list:
        """Returns the gradients of what ``run`` computes from, as the hooks change them."""
        with self.trace.inside(), torch.enable_grad():
            grads = {i: moving(g.conj(), outs[i]) for i, g in zip(places, cotangents)}
            grad_outputs = tuple(grads.get(i) for i in range(len(outs)))
            for hook in self.before:
                grad_outputs = changed(grad_outputs, hook(self.module, grad_outputs))
            back = [array_of(grad_outputs[i]) for i in places]
            back = [g.astype(c.dtype).conj() for g, c in zip(back, cotangents)]
            computed = [*jax.vjp(run, *arrays)[1](back)]
            follow = dict(zip(self.inputs, computed))
            grad_inputs = tuple(
                moving(follow[i].conj(), self.args[i]) if i in follow
                else zeros(x) if x is not None and self.inputs else None
                for i, x in enumerate(self.args)
            )  # fmt: skip
            for hook in self.hooks:
                new = hook(self.module, grad_inputs, grad_outputs)
                grad_inputs = changed(grad_inputs, new)
            for place, i in enumerate(self.inputs):
                new = array_of(grad_inputs[i]).astype(computed[place].dtype)
                computed[place] = new.conj()
            return computed


def changed(grads: tuple, new: object) -> tuple:
    """Returns gradients as a hook gave them back."""
    return grads if new is None else new if isinstance(new, tuple) else (new,)


def of_parameters(own: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> None:
    """Hooks that the user's tensors had before, on those of the trace in their place."""
    with private.DisableTorchFunction():
        hooks = {k: hooks_of(own[k]) for k in tensors if k in own}
    for name, (of_gradient, of_leaf) in hooks.items():
        tensor = tensors[name]
        if (of_gradient or of_leaf) and needs_gradient(inner(tensor)):
            hooked(tensor, [*of_gradient, *(accumulated(tensor, x) for x in of_leaf)])


def hooks_of(tensor: torch.Tensor) -> tuple[list[Callable], list[Callable]]:
    """Returns the hooks of a leaf's gradient, and those after its accumulation."""
    kinds = tensor._backward_hooks, tensor._post_accumulate_grad_hooks
    of_gradient, of_leaf = ([*(x or {}).values()] for x in kinds)
    return of_gradient, of_leaf


REGISTERS = {torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook}
