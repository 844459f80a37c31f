"""Operators of other libraries whose results alias, or that write to, their arguments.

torch's functionalization refuses these. Their kernels are Python code, so that it is run instead:
functionalization sees what it does.
"""

from __future__ import annotations

from typing import Any

from anyjax.errors import Unsupported
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
            return custom._init_fn(*args, **kwargs)
    key = python_key(op)
    if key is None:
        raise Unsupported(
            f"{op} has results that are views of its arguments, or writes to them",
            where=diagnostics.where(),
            why="its kernel is no Python code, which torch's functionalization could follow",
            do="give it a kernel in Python (torch.library), or call what it computes",
        )
    return op._op_dk(key, *args, **kwargs)  # a mode would be asked about the operator again


def python_key(op: Any) -> Any:
    """Returns the dispatch key of the kernel in torch.library, None without one."""
    path = op._schema.name.replace("::", "/")
    path += f".{op._schema.overload_name}" if op._schema.overload_name else ""
    return next((key for key in KEYS if f"{path}/{key.name}" in private.PYTHON_KERNELS), None)
