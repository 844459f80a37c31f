"""Operators of other libraries, whose kernels are Python code: that is run, with the gradient that
was registered for it.

Those whose results alias, or that write to, their arguments never come to the dispatcher: torch's
functionalization refuses them.
"""

from __future__ import annotations

from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.torch.autograd.custom_function import Function
from anyjax.torch.core import diagnostics, private

TORCHS = {"aten", "prim", "prims", "inductor", "higher_order", "_c10d_functional"}
KEYS = (private.DENSE, private.COMPOSITE, private.CPU)


def overload(func: object) -> Any:
    """Returns the operator that a call is of; None where it is of none, or of several."""
    if isinstance(func, private.OpOverloadPacket):
        names = func.overloads()
        return getattr(func, names[0]) if len(names) == 1 else None
    return func if isinstance(func, private.OpOverload) else None


class Aliasing:
    """Contains such operators."""

    def __contains__(self, func: object) -> bool:
        op = overload(func)
        if op is None or op._schema.name.split("::")[0] in TORCHS:
            return False
        return any(a.alias_info is not None for a in op._schema.arguments)


def serve(mode: Any, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs the operator's own Python code."""
    op = overload(func)
    if custom := private.CUSTOM_OPS.get(op._schema.name):
        with mode:
            return run(op, custom, *args, **kwargs)
    key = python_key(op)
    if key is None:
        raise Unsupported(
            f"{op} has results that are views of its arguments, or writes to them",
            where=diagnostics.where(),
            why="its kernel is no Python code, which torch's functionalization could follow",
            do="give it a kernel in Python (torch.library), or call what it computes",
        )
    return op._op_dk(key, *args, **kwargs)  # a mode would be asked about the operator again


def run(op: Any, custom: Any, /, *args: object, **kwargs: object) -> Any:
    """Returns what an operator of ``torch.library.custom_op`` computes."""
    if custom._backward_fn is None:
        return custom._init_fn(*args, **kwargs)
    arguments = op._schema.arguments
    values = dict(zip((a.name for a in arguments), args)) | kwargs
    values = {a.name: values.get(a.name, a.default_value) for a in arguments}
    keywords = {a.name: values.pop(a.name) for a in arguments if a.kwarg_only}

    def setup(ctx: object, inputs: tuple, output: object) -> None:
        if custom._setup_context_fn is not None:
            options = {"keyword_only_inputs": keywords} if keywords else {}
            custom._setup_context_fn(ctx=ctx, inputs=inputs, output=output, **options)

    forward = lambda *args: custom._init_fn(*args, **keywords)
    function = Function(op._schema.name, forward, setup, custom._backward_fn, nested=True)
    return function((*values.values(),))


def python_key(op: Any, below_autograd: bool = True) -> Any:
    """Returns the dispatch key of the kernel in torch.library, None without one."""
    path = op._schema.name.replace("::", "/")
    path += f".{op._schema.overload_name}" if op._schema.overload_name else ""
    keys = KEYS if below_autograd or not torch.is_grad_enabled() else (private.AUTOGRAD, *KEYS)
    return next((key for key in keys if f"{path}/{key.name}" in private.PYTHON_KERNELS), None)
