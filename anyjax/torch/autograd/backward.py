"""``torch.autograd.grad`` and ``backward()`` inside a trace, by the tape.

torch's own Python prepares and checks their arguments; what is served is the call of its engine.
"""

from __future__ import annotations

from typing import Any

import jax
import torch

from anyjax.errors import Unsupported
from anyjax.torch.autograd.tape import Tape, made
from anyjax.torch.autograd.tape_slice import Part, gradient
from anyjax.torch.core import current_trace, diagnostics, private
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.tensor import GRADIENT, JaxTensor, differentiable, needs_gradient, origins_of
from anyjax.typing import PyTree


def run_backward(
    original, outputs, grads, retain_graph, create_graph, inputs, allow_unreachable, accumulate_grad
):
    """torch's engine: gradients of ``outputs``, weighted by ``grads``, for the inputs in their
    order; or into ``.grad`` of the inputs, of all leaves where none are given.

    Raises:
      RuntimeError: as torch, where nothing needs a gradient or an input was not used.
    """
    trace = current_trace.trace()
    if any(private.level_of(x) != -1 for x in (*outputs, *inputs)):
        return original(
            outputs, grads, retain_graph, create_graph, inputs,
            allow_unreachable=allow_unreachable, accumulate_grad=accumulate_grad,
        )  # fmt: skip
    ys = [inner(y) for y in outputs]
    tape = trace.recording()
    for i, y in enumerate(ys):
        if not needs_gradient(y):
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
    xs = [inner(x) for x in inputs] if inputs else leaves(tape)
    if not all(map(needs_gradient, xs)):
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    xs = [x.unhooked for x in xs]
    used = Part(tape, ys, xs).used
    if inputs and not all(used) and not allow_unreachable:
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    needed_inputs = [x for x, needed in zip(xs, used) if needed]
    gradients = iter(pulled(tape, ys, needed_inputs, grads, create_graph) if needed_inputs else ())
    out = tuple(next(gradients) if needed else None for needed in used)
    if not accumulate_grad:
        return out
    holders = [*inputs] if inputs else [x.holder and x.holder() for x in xs]
    for holder, grad in zip(holders, out):
        if holder is not None and grad is not None:
            accumulate(holder, grad, create_graph)
    return out


def leaves(tape: Tape) -> list[JaxTensor]:
    """Returns the tensors whose gradients go to ``.grad``."""
    return [x for x in tape.leaves if needs_gradient(x) and x.holder and x.holder() is not None]


def pulled(tape: Tape, ys, xs, grads, create_graph: bool) -> list[torch.Tensor]:
    """Returns the gradients, as functional tensors; an axis of ``torch.vmap`` in ``grads`` is in
    them.
    """
    level = max(private.level_of(g) for g in grads)
    if level != -1:
        grads = [batch_first(g, level) for g in grads]
    tape_slice, cotangents = Part(tape, ys, xs), [inner(g) for g in grads]
    function = gradient(tape_slice, batched=level != -1)
    operands = [*xs, *tape_slice.free, *cotangents]
    count = len(tape)
    arrays = function(*map(array_of, operands))
    del tape[count:]  # what custom functions computed on the way back
    origins = origins_of(operands)
    if not create_graph:
        arrays, origins = [*map(jax.lax.stop_gradient, arrays)], origins & ~GRADIENT
    outs = [made(a, x.dtype, origins) for a, x in zip(arrays, xs)]
    if create_graph:
        jax_tensors = {i: x for i, x in enumerate(operands) if isinstance(x, JaxTensor)}
        fixed = [array_of(x) for x in operands]

        def again(*arrays: jax.Array) -> list[jax.Array]:
            arrays_by_place = dict(zip(jax_tensors, arrays))
            return function(*(arrays_by_place.get(i, a) for i, a in enumerate(fixed)))

        tape.note(again, jax_tensors.values(), outs)
    lifted = [lift(x) for x in outs]
    return lifted if level == -1 else [private.add_batch_dim(x, 0, level) for x in lifted]


def mapped(original, func, in_dims=0, out_dims=0, allow_none_pass_through=False):
    """Returns the older ``vmap`` by which torch maps its engine over many weights at once."""

    def map_gradients(*args: Any) -> tuple:
        has_gradient: list[bool] = []

        def some(*args: Any) -> tuple:
            out = func(*args)
            has_gradient[:] = [x is not None for x in out]
            return tuple(x for x in out if x is not None)

        gradients = iter(torch.vmap(some, in_dims, out_dims)(*args))
        return tuple(next(gradients) if x else None for x in has_gradient)

    return map_gradients


def batch_first(grad: torch.Tensor, level: int) -> torch.Tensor:
    """Returns a gradient inside ``torch.vmap`` with the axis that is mapped in front; all must have
    it.
    """
    if private.level_of(grad) != level:
        raise Unsupported(
            "torch.vmap of a gradient, one of whose weights is not mapped",
            where=diagnostics.where(),
            why="all grad_outputs must have the axis that is mapped",
            do="map over all of them, or take the gradients one by one",
        )
    unbatched = private.unwrapped(grad)
    return unbatched.movedim(private.batch_axis(grad), 0)


def accumulate(holder: torch.Tensor, grad: torch.Tensor, create_graph: bool) -> None:
    """Adds to ``.grad``, in place where no graph of it is wanted."""
    if holder.grad is None:
        holder.grad = grad
    elif create_graph:
        holder.grad = holder.grad + grad
    else:
        with torch.no_grad():
            holder.grad.add_(grad)


def ask(mode: object, func: object, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Before torch's own Python: it asks the tensors themselves whether they need a gradient."""
    if private.transforms():  # where torch forbids it, and weights are given
        return NotImplemented
    for x in flatten((args, kwargs))[0]:
        if isinstance(x, torch.Tensor) and private.is_functional(x) and differentiable(x.dtype):
            x.requires_grad_(needs_gradient(inner(x)))
    return NotImplemented


ASKS = {torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward}
