"""Operators without a lowering, by way of others: torch's decomposition, or JAX's derivative."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from anyjax.errors import DataDependent, Unsupported
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.lifting import inner
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.tensor import needs_gradient
from anyjax.torch.lowering import custom_operators, foreach, gradients
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from anyjax.torch.lowering.run import Run


class Write(Unsupported):
    """A decomposition writes to a tensor, where writes are not served; or code that keeps tensors
    of the trace where nothing fills them in, as in an optimizer that nobody knows of.
    """


def fallback(run: Run, op: private.OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the results of an operator by way of others; without any, what the run makes of it.

    A decomposition in C++ runs above functionalization again, and so does one in Python that
    writes.
    """
    if custom := private.CUSTOM_OPS.get(op._schema.name):
        function = custom._init_fn
        if run.is_functional:  # elsewhere torch's own autograd is on
            function = partial(custom_operators.run, op, custom)
        return run.python(op, function, args, kwargs)
    if op.has_kernel_for_dispatch_key(private.COMPOSITE):
        return run.above(op.decompose, args, kwargs)
    if run.is_functional and op._schema.is_mutable:
        raise Write(
            f"{op} writes to a tensor that is no part of the model",
            where=diagnostics.where(),
            why="this trace made it, and an object keeps it that forward is not seen to refer to",
            do="keep the object in an attribute that forward names, or around the function",
        )
    key = custom_operators.python_key(op, op in run.decomposing) if run.is_functional else None
    if key is not None:
        return of_library(run, op, key, args, kwargs)
    function = other_way(run, op)
    if function is None or op in run.decomposing:  # some come back to their operator
        return run.missing_op(op, args, kwargs)
    run.decomposing.add(op)
    try:
        return run.below(function, args, kwargs)
    except Write:
        return run.above(function, args, kwargs)
    finally:
        run.decomposing.discard(op)


def of_library(
    run: Run, op: private.OpOverload, key: object, args: tuple, kwargs: dict[str, PyTree]
) -> Any:
    """Returns the results of an operator of ``torch.library``, by the kernel of this dispatch key;
    that of autograd comes back for the other.

    A kernel gets the tensors inside of functional ones: torch asks no mode about what it calls, and
    functional ones would give it memory that is not theirs.
    """
    if key is not private.AUTOGRAD:
        try:
            return run.below(partial(op._op_dk, key), args, kwargs)
        except (Write, DataDependent, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not diagnostics.reads_memory(error):
                raise
        return run.missing_op(op, args, kwargs)

    def kernel(*args: PyTree, **kwargs: PyTree) -> Any:
        for x in flatten((args, kwargs))[0]:
            if isinstance(x, torch.Tensor) and needs_gradient(inner(x)):
                x.requires_grad_()  # which its kernel asks for
        return op._op_dk(key, *args, **kwargs)

    is_nested = op in run.decomposing
    run.decomposing.add(op)
    try:
        return run.above(kernel, args, kwargs)
    finally:
        if not is_nested:
            run.decomposing.discard(op)


def other_way(run: Run, op: private.OpOverload) -> Any:
    """Returns a function of tensors that computes an operator in Python, None if there is none."""
    if foreach.serves(op):
        return partial(foreach.each, op)
    function = private.decompositions.get(op) or getattr(op, "impl_aten", None)
    if function is None or op in gradients.BETTER:
        return gradients.of(run, op)
    return function
