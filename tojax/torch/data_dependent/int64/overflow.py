"""64-bit integers of torch, which JAX computes in 32 bits while x64 is off: a program checks that a
product, power, sum or shift which may need more does not.

    key = row * columns + column      # of inputs: checked
    torch.arange(n) * 2               # known to be small: not checked

What is checked is computed in floats beside; a number that wrapped is off by 2**32, which no
rounding is.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from tojax import warn_once
from tojax.dtypes import x64
from tojax.errors import UncheckedValues, Unsupported
from tojax.torch.core import diagnostics, sizes
from tojax.torch.core.lifting import inner
from tojax.torch.core.tensor import JaxTensor, differentiable
from tojax.torch.data_dependent.int64 import ranges
from tojax.torch.data_dependent.int64.ranges import (
    ANY,
    FILLS,
    MOVES,
    NUMBERS,
    PAIRS,
    PLACES,
    RULES,
    Bounds,
)

INTEGERS = {torch.int64, torch.int32}
STEP = 1 << 24  # a sum with a number below, such as the next position, is not checked
SHIFTS = {"bitwise_left_shift", "__lshift__"}
SUMS = {"add", "sub"}
CHECKED = SUMS | SHIFTS | {"mul", "square", "pow", "sum", "cumsum", "prod", "cumprod"}
CHECKED |= {"mm", "bmm", "matmul", "mv", "dot", "addmm", "baddbmm"}


class Computed:
    """One call of an operator, whose results are integers."""

    def __init__(self, name: str, args: tuple, kwargs: dict[str, Any]):
        self.name, self.args, self.kwargs = name, args, kwargs

    def argument(self, name: str, at: int, default: Any) -> Any:
        """An argument by its name and place."""
        return self.args[at] if at < len(self.args) else self.kwargs.get(name, default)

    def bounds(self, at: int) -> Bounds:
        """The bounds of an operand."""
        return ranges.of(self.args[at]) or ANY

    def limit(self, name: str, at: int) -> Bounds | None:
        """The bounds of what may be None, as an argument of clamp."""
        argument = self.argument(name, at, None)
        bounds = ranges.of(argument)
        return ANY if bounds is None and isinstance(argument, torch.Tensor) else bounds

    def terms(self) -> int:
        """How many elements of the first operand one of the result is made of, at most."""
        tensor, dims = self.args[0], self.argument("dim", 1, None)
        if isinstance(dims, int):
            dims = [dims]
        if not isinstance(dims, (list, tuple)) or not dims or not tensor.dim():
            dims = range(tensor.dim())
        return sizes.count([tensor.shape[d] for d in dims])

    def moved(self) -> Bounds | None:
        """The bounds of all arguments together."""
        all_bounds = [(0, 1)]
        for value in (*self.args, *self.kwargs.values()):
            if value is True or isinstance(value, str):
                return None  # it adds up
            filled = self.name in FILLS and isinstance(value, NUMBERS)
            several = value if isinstance(value, (list, tuple)) else ()
            tensors = [x for x in (value, *several) if isinstance(x, torch.Tensor)]
            for operand in [value] if filled else tensors:
                bounds = ranges.of(operand)
                if bounds is None:
                    return None
                all_bounds.append(bounds)
        return min(x for x, _ in all_bounds), max(x for _, x in all_bounds)

    def within(self) -> Bounds | None:
        """The bounds of what the operator gives, None where nothing is known."""
        if self.name in MOVES:
            return self.moved()
        if self.name in PLACES:
            return 0, max(sizes.count(x.shape) for x in self.args if isinstance(x, torch.Tensor))
        return RULES[self.name](self) if self.name in RULES else None

    def small_step(self) -> bool:
        """Whether a sum only goes on by a number of positions."""
        if self.name not in SUMS:
            return False
        return min(max(map(abs, self.bounds(i))) for i in (0, 1)) <= STEP


def follow(trace: Any, call: Any, args: tuple, kwargs: dict[str, Any], values: Any, out: Any):
    """Notes the bounds of integers that were computed; adds a condition if 32 bits may not do.

    Raises:
      Unsupported: the values are known, and 32 bits do not hold them.
    """
    if isinstance(out, JaxTensor) and differentiable(out.dtype):
        return
    if x64():
        return
    _mark(args, kwargs, out)
    if isinstance(out, (tuple, list)):
        for i, result in enumerate(out):
            if isinstance(result, JaxTensor) and result.dtype in INTEGERS:
                name = call.op.overloadpacket.__name__
                if i == 1 and name in PAIRS:
                    result.bounds = 0, sizes.count(args[0].shape)
                elif name in MOVES:
                    result.bounds = Computed(name, args, kwargs).moved()
        return
    if not isinstance(out, JaxTensor) or out.dtype not in INTEGERS:
        return
    computed = Computed(call.op.overloadpacket.__name__, args, kwargs)
    bounds = computed.within()
    if bounds is None:
        return
    if ANY[0] <= bounds[0] and bounds[1] <= ANY[1]:
        out.bounds = bounds if bounds != ANY else None
    elif computed.name in CHECKED and out.dtype is torch.int64 and not computed.small_step():
        _check(trace, call, values, out)


def _mark(args: tuple, kwargs: dict[str, Any], out: Any) -> None:
    """Notes of integers and bools that they were computed from integers that may overflow."""
    marks = (x.unchecked for x in jax.tree.leaves((args, kwargs)) if isinstance(x, JaxTensor))
    if (mark := next(filter(None, marks), None)) is None:
        return
    for result in out if isinstance(out, (tuple, list)) else [out]:
        if isinstance(result, JaxTensor) and not differentiable(result.dtype):
            result.unchecked = mark


def unchecked(out: Any) -> str | None:
    """Returns the operator that may have given integers beyond 32 bits, if an output was computed
    from them and nothing in it can become NaN.
    """
    tensors = [inner(x) for x in jax.tree.leaves(out) if isinstance(x, torch.Tensor)]
    if any(differentiable(x.dtype) for x in tensors):
        return None
    return next((x.unchecked for x in tensors if getattr(x, "unchecked", None)), None)


def _check(trace: Any, call: Any, values: list[Any], out: JaxTensor) -> None:
    exact = _in_floats(call, values)
    holds = (jnp.abs(out.array.astype(jnp.float32) - exact) < 2.0**31).all()
    if not isinstance(holds, jax.core.Tracer):
        if not holds:
            raise overflow(call.op)
    elif trace.conditions is not None:
        trace.conditions.append(holds)
        out.unchecked = f"{call.op} of {diagnostics.where()}"
    elif call.op.overloadpacket.__name__ not in SUMS:  # those of positions, mostly
        warn_once.warn(
            f"{call.op} of 64-bit integers inside a loop or branch is computed in 32 bits and not "
            'checked; jax.config.update("jax_enable_x64", True) keeps them',
            UncheckedValues,
        )


def _in_floats(call: Any, values: list[Any]) -> jax.Array:
    """The same, rounded and without a limit; no integer is NaN, which is infinity times 0."""
    name, real = call.op.overloadpacket.__name__, jnp.float32
    if name in SHIFTS:
        first, second = (jnp.asarray(x).astype(real) for x in values)
        return first * 2.0**second
    floats: list[Any] = []
    for param, value in zip((p for p in call.params if p.kind != "dropped"), values):
        if isinstance(value, jax.Array):
            floats.append(value.astype(real))
        elif param.kind == "array" and type(value) is int:
            floats.append(float(value))
        else:
            floats.append(real if param.kind == "dtype" else value)
    if name == "pow":  # integers to negative powers are 0, 1 and -1
        floats[1] = jnp.maximum(floats[1], 0)
    exact = call.row.lowering(*floats)
    return jnp.where(jnp.isnan(exact), 0, exact)


def overflow(op: Any) -> Unsupported:
    """The error for 64-bit integers that 32 bits do not hold."""
    return Unsupported(
        f"{op} gives 64-bit integers beyond 2**31",
        where=diagnostics.where(),
        why="JAX keeps 32-bit integers unless x64 is on",
        do='call jax.config.update("jax_enable_x64", True) first',
    )
