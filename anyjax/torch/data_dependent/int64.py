"""64-bit integers of torch, which JAX computes in 32 bits while x64 is off: a program checks that
what may need more does not. All operators count for sums of products but those that are listed.

    key = row * columns + column      # of inputs: checked
    torch.arange(n) * 2               # small: not checked

Small are those whose limit follows from dtypes, constants and the sizes of arrays: positions,
masks, indices, and what is computed from these. What is checked is computed in floats beside; a
number that wrapped is off by 2**32, which no rounding is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import torch

from anyjax import warn_once
from anyjax.dtypes import is_float, x64
from anyjax.errors import UncheckedValues, Unsupported
from anyjax.numerics import wide_integers
from anyjax.numerics.wide_integers import REAL, STEP, fit
from anyjax.torch.core import diagnostics, sizes
from anyjax.torch.core.call import Call
from anyjax.torch.core.lifting import inner
from anyjax.torch.core.tensor import JaxTensor, differentiable

INTEGERS = {torch.int64, torch.int32}
UNKNOWN = 2**31 - 1  # the limit of an input: as large as 32 bits hold
BEYOND = 2 * UNKNOWN
NUMBERS = (int, float, torch.SymInt)
LARGE = 1 << 20  # elements of constants that are not looked at

# Functions whose results are no larger than their operands, beside views and copies.
_MOVES = """adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax
as_strided_scatter bitwise_not bitwise_right_shift block_diag broadcast_tensors cartesian_prod cat
ceil channel_shuffle chunk clamp_max clamp_min clone column_stack combinations complex concat
constant_pad_nd contiguous copy cummax cummin deg2rad detach diag diag_embed diagonal
diagonal_scatter dsplit dstack embedding empty empty_like expand fill fix flip fliplr flipud floor
fmax fmin fmod full full_like gather gcd heaviside hsplit hstack im2col index index_fill index_put
index_select kthvalue masked_fill masked_scatter masked_select max maximum max_pool1d max_pool2d
max_pool3d median meshgrid min minimum mode msort nanmedian nan_to_num narrow new_empty new_full
new_ones new_zeros ones ones_like pad pixel_shuffle pixel_unshuffle positive put reflection_pad1d
reflection_pad2d reflection_pad3d relu repeat repeat_interleave replication_pad1d
replication_pad2d replication_pad3d roll rot90 round __rshift__ scalar_tensor scatter
select_scatter slice_scatter sort split stack take take_along_dim tensor_split tile topk tril triu
trunc unbind unfold unique unique_consecutive unique_dim _unique2 unravel_index _unsafe_index
_unsafe_view vsplit vstack where zeros zeros_like"""
MOVES = {*_MOVES.split()}
FILLS = {"constant_pad_nd", "fill", "full", "full_like", "index_fill", "masked_fill", "new_full"}
FILLS |= {"scatter", "where", "index_put", "clamp_min", "clamp_max"}  # their numbers are values
PLACES = {"argmax", "argmin", "argsort", "bucketize", "searchsorted"}
PLACES |= {"count_nonzero", "bincount", "nonzero"}
PAIRS = {"sort", "topk", "max", "min", "kthvalue", "mode", "median", "cummax", "cummin"}
STEPS = {"add", "sub"}
SHIFTS = {"bitwise_left_shift", "__lshift__"}
SUMS = {"sum", "cumsum"}
PRODUCTS = {"prod", "cumprod"}
MATRICES = {"mm": 0, "bmm": 0, "matmul": 0, "mv": 0, "dot": 0, "addmm": 1, "baddbmm": 1}
NEGATES = {"abs", "neg", "div", "floor_divide"}  # the least number has no negative in 32 bits
CASTS = {"_to_copy", "to"}
CASTING = {*CASTS, *SUMS, *PRODUCTS}  # the latter with dtype=
GROWING = {"mul", "square", "pow", *SHIFTS, *SUMS, *PRODUCTS, *MATRICES}


def limit_of(value: object) -> int:
    """Returns how large the integers of an operand are at most, as far as that is known."""
    if isinstance(value, (bool, int)):
        return abs(value)
    if isinstance(value, float):
        return math.ceil(abs(value)) if math.isfinite(value) else UNKNOWN
    if isinstance(value, torch.SymInt):
        return max(map(abs, sizes.limits(value)))
    if not isinstance(value, torch.Tensor):
        return UNKNOWN
    if differentiable(value.dtype):
        return BEYOND
    tensor = inner(value)
    if isinstance(tensor, JaxTensor):
        if tensor.limit is not None:
            return tensor.limit
    elif 0 < tensor.numel() <= LARGE:
        return max(abs(int(x)) for x in tensor.long().aminmax())
    if tensor.dtype is torch.bool:
        return 1
    return -torch.iinfo(tensor.dtype).min or 255 if tensor.dtype.itemsize < 4 else UNKNOWN


class Operation(NamedTuple):
    """One call of an operator, whose results are integers."""

    call: Call
    args: tuple
    kwargs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Returns the name of the operator without its overload."""
        return self.call.op.overloadpacket.__name__

    def argument(self, name: str, at: int, default: object = None) -> Any:
        return self.args[at] if at < len(self.args) else self.kwargs.get(name, default)

    def operand(self, at: int) -> int:
        return limit_of(self.args[at])

    def terms(self) -> int:
        """Counts the elements of the first operand that a result is made of, at most."""
        tensor, dims = self.args[0], self.argument("dim", 1)
        if isinstance(dims, int):
            dims = [dims]
        if not isinstance(dims, (list, tuple)) or not dims or not tensor.dim():
            dims = range(tensor.dim())
        return sizes.count([tensor.shape[d] for d in dims])

    def moved(self) -> int:
        """Returns the limit of all arguments together."""
        limits = [int("ones" in self.name)]
        makes = self.name.endswith("_like") or self.name.startswith("new_")  # of a shape alone
        for value in (*self.args, *self.kwargs.values()):
            if value is True or isinstance(value, str):
                return self.mixed()  # it adds up
            filled = self.name in FILLS and isinstance(value, NUMBERS)
            items = value if isinstance(value, (list, tuple)) else [value]
            read = [x for x in items if filled or (isinstance(x, torch.Tensor) and not makes)]
            limits += map(limit_of, read)
        return max(limits)

    def limit(self, place: int) -> int:
        name = self.name
        tensors = [x for x in jax.tree.leaves((self.args, self.kwargs)) if _is_tensor(x)]
        of_floats = name not in CASTING and all(differentiable(x.dtype) for x in tensors)
        if tensors and (of_floats or name in PLACES or (name in PAIRS and place == 1)):
            return max(sizes.count(x.shape) for x in tensors)  # a place or a number of elements
        if name in RULES:
            return RULES[name](self)
        if name in MOVES or name.endswith("_copy") or self.call.op.is_view:
            return self.moved()
        return UNKNOWN if self.call.random else self.mixed()

    def mixed(self) -> int:
        """Returns the limit of sums of products of any elements of integers."""
        most, count = 2, 1
        for value in jax.tree.leaves((self.args, self.kwargs)):
            if isinstance(value, torch.Tensor):
                if differentiable(value.dtype):
                    return UNKNOWN  # places, mostly
                count = max(count, sizes.count(value.shape))
            elif not isinstance(value, NUMBERS):
                continue
            most *= max(limit_of(value), 1)
        return most * count

    def steps(self) -> bool:
        """Returns whether this is a sum with a small number, as the next position is."""
        return self.name in STEPS and min(self.operand(0), self.operand(1)) <= STEP


def _is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor)


def _matrix(x: Operation) -> int:
    """Limits products of matrices, of ``addmm`` beside a term."""
    if x.kwargs:  # factors of the two terms
        return BEYOND
    first = MATRICES[x.name]
    most = x.operand(first) * x.operand(first + 1) * sizes.limits(x.args[first].shape[-1])[1]
    return most + x.operand(0) * first


def _step(x: Operation) -> int:
    return x.operand(0) + x.operand(1) * limit_of(x.argument("alpha", 2, 1))


def _product(x: Operation) -> int:
    """Limits a product; the least input has no negative in 32 bits."""
    negative = any(type(n) is int and n == -1 for n in x.args)
    return x.operand(0) * x.operand(1) + negative


def _clamp(x: Operation) -> int:
    ends = [x.argument("min", 1), x.argument("max", 2)]
    return max(limit_of(x.args[0] if end is None else end) for end in ends)


def _negative(x: Operation) -> int:
    return x.operand(0) + (x.operand(0) == UNKNOWN)


def _bits(x: Operation) -> int:
    return min(1 << max(x.operand(0), x.operand(1)).bit_length(), UNKNOWN)


def _added(x: Operation) -> int:
    """Of elements added at indices, which themselves are no terms."""
    source = x.args[3]
    return x.operand(0) + limit_of(source) * sizes.count(source.shape)


RULES: dict[str, Callable[[Operation], int]] = {
    "scatter_add": _added,
    "index_add": lambda x: _added(x) * max(limit_of(x.argument("alpha", 4, 1)), 1),
    "arange": lambda x: max(limit_of(n) for n in x.args if isinstance(n, NUMBERS)),
    "mul": _product,
    "square": lambda x: x.operand(0) ** 2,
    "pow": lambda x: max(x.operand(0), 1) ** min(x.operand(1), 64),
    "rsub": _step,
    **dict.fromkeys(NEGATES, _negative),
    **dict.fromkeys(CASTS, lambda x: x.operand(0)),
    "sign": lambda x: 1,
    "one_hot": lambda x: 1,
    "remainder": lambda x: x.operand(1),
    "bitwise_and": lambda x: min([n for n in x.args if type(n) is int and n >= 0] or [_bits(x)]),
    "bitwise_or": _bits,
    "bitwise_xor": _bits,
    "clamp": _clamp,
    **dict.fromkeys(STEPS, _step),
    **dict.fromkeys(SHIFTS, lambda x: x.operand(0) << min(x.operand(1), 64)),
    **dict.fromkeys(SUMS, lambda x: x.operand(0) * x.terms()),
    **dict.fromkeys(PRODUCTS, lambda x: max(x.operand(0), 1) ** min(x.terms(), 64)),
    **dict.fromkeys(MATRICES, _matrix),
}


def follow(
    conditions: list[jax.Array] | None,
    call: Call,
    args: tuple,
    kwargs: Mapping[str, object],
    values: Sequence[object],
    out: object,
    steps: bool = False,
) -> bool:
    """Notes the limits of integers that were computed; adds a condition if 32 bits may not do,
    and warns where there are no conditions.

    Returns:
      whether a traced sum with a small number was let pass: with ``steps`` none is.

    Raises:
      Unsupported: the values are known, and 32 bits do not hold them.
    """
    if isinstance(out, JaxTensor) and differentiable(out.dtype):
        return False
    passed, is_wide = False, x64()
    if not is_wide:
        _mark(args, kwargs, out)
    operation = Operation(call, args, kwargs)
    for place, result in enumerate(out if isinstance(out, (tuple, list)) else [out]):
        if not isinstance(result, JaxTensor) or result.dtype not in INTEGERS:
            continue
        limit = operation.limit(place)
        if limit <= UNKNOWN:
            result.limit = limit
        elif result.dtype is torch.int64 and not is_wide:
            if operation.steps() and not steps and isinstance(result.array, jax.core.Tracer):
                passed = True
            else:
                _check(conditions, operation, values, result, place)
    return passed


def _mark(args: tuple, kwargs: Mapping[str, object], out: object) -> None:
    """Notes of integers and bools that they were computed from integers that may overflow."""
    marks = (x.unchecked for x in jax.tree.leaves((args, kwargs)) if isinstance(x, JaxTensor))
    if (mark := next(filter(None, marks), None)) is None:
        return
    for result in out if isinstance(out, (tuple, list)) else [out]:
        if isinstance(result, JaxTensor) and not differentiable(result.dtype):
            result.unchecked = mark


def unchecked(out: object) -> str | None:
    """Returns the operator that may have given integers beyond 32 bits, if an output was computed
    from them and nothing in it can become NaN.
    """
    tensors = [inner(x) for x in jax.tree.leaves(out) if isinstance(x, torch.Tensor)]
    if any(differentiable(x.dtype) for x in tensors):
        return None
    return next((x.unchecked for x in tensors if getattr(x, "unchecked", None)), None)


def _check(
    conditions: list[jax.Array] | None,
    x: Operation,
    values: Sequence[object],
    out: JaxTensor,
    place: int,
) -> None:
    call = x.call
    exact: Any = _in_floats(call, values)
    exact = exact[place] if isinstance(exact, (tuple, list)) else exact
    of_floats = any(is_float(value.dtype) for value in values if isinstance(value, jax.Array))
    holds = fit(exact, None if of_floats else out.array)
    if not isinstance(holds, jax.core.Tracer):
        if not holds:
            raise overflow(call)
    elif conditions is not None:
        conditions.append(holds)
        if x.name not in NEGATES:  # wrong for one number of all
            out.unchecked = f"{call.op} of {diagnostics.where()}"
    elif x.name in GROWING:  # differences and quotients are of positions, mostly
        warn_once.warn(
            f"{call.op} of 64-bit integers inside a loop or branch is computed in 32 bits and not "
            'checked; jax.config.update("jax_enable_x64", True) keeps them',
            UncheckedValues,
        )


def _lcm(a: jax.Array, b: jax.Array) -> jax.Array:
    common = jnp.maximum(jnp.gcd(a, b), 1)  # of numbers that are not rounded
    return jnp.asarray(a / common, REAL) * b


EXACT: dict[str, Callable[..., jax.Array]] = {
    "lcm": _lcm,
    **dict.fromkeys(SHIFTS, lambda first, second: jnp.asarray(first, REAL) * 2.0**second),
}
INDICES = {"index", "indices", "mask"}


def _in_floats(call: Call, values: Sequence[Any]) -> jax.Array:
    """Computes the same, rounded and without a limit."""
    name, real = call.op.overloadpacket.__name__, REAL
    if name in EXACT:
        return EXACT[name](*values)
    floats: list[Any] = []
    for param, value in zip((p for p in call.params if p.kind != "dropped"), values):
        if param.name in INDICES:
            floats.append(value)
        elif isinstance(value, jax.Array):
            floats.append(value.astype(real))
        elif param.kind == "arrays":
            floats.append([x.astype(real) for x in value])
        elif param.kind == "array" and type(value) is int:
            floats.append(float(value))
        else:
            floats.append(real if param.kind == "dtype" else value)
    if name == "pow":  # integers to negative powers are 0, 1 and -1
        floats[1] = jnp.maximum(floats[1], 0)
    assert call.row is not None
    return call.row.lowering(*floats)


def overflow(call: Call) -> Unsupported:
    """Returns the error for 64-bit integers that 32 bits do not hold."""
    return wide_integers.overflow(call.op, diagnostics.where())
