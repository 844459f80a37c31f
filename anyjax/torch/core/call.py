"""One operator's call: schema arguments in, JAX arrays to the lowering, tensors with torch's dtypes
out.

All of it follows from the schema and is worked out once per operator.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax.dtypes import fitting, x64
from anyjax.errors import Unsupported
from anyjax.table import REQUIRED, Row
from anyjax.torch.core import autocast, diagnostics, dtypes, result_dtypes, sizes, strides
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.schema import HIDDEN_WRITES, read, table
from anyjax.torch.core.tensor import GRADIENT, JaxTensor

aten = torch.ops.aten

HOLDS_SIZES = (torch.SymInt, torch.SymFloat, list, tuple)
KEEPS_SCALARS = {"mul", "div", "floor_divide"}  # in float32 beside a tensor of 16-bit floats
SHIFTS = {"bitwise_left_shift", "__lshift__"}
LIKE = {aten.zeros_like, aten.ones_like, aten.full_like}
LIKE |= {aten.new_zeros, aten.new_ones, aten.new_full}  # take only shape and dtype of a tensor
COMPARES = {aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge, aten.isnan, aten.isfinite}
COMPARES |= {aten.logical_not, aten.logical_and, aten.logical_or, aten.logical_xor}
COMPARES |= {aten.bitwise_not, aten.bitwise_and, aten.bitwise_or}
COMPARES |= {aten.select, aten.slice, aten.unsqueeze}  # what is compared is often a column
# Values may decide their sizes, see torch/sizes.
CHOOSES = {aten.index, aten._unsafe_index, aten.index_put, aten._unsafe_index_put, aten.ctc_loss}
CHOOSES |= {aten.nonzero, aten.masked_select, aten._unique, aten._unique2, aten.unique_dim}
CHOOSES |= {aten.unique_consecutive, aten.unique_dim_consecutive, aten.repeat_interleave}
CHOOSES |= {aten.bincount}
UNDIFFERENTIABLE = {f"{kind}_like" for kind in ("zeros", "ones", "full", "empty")}
UNDIFFERENTIABLE |= {f"{kind}_like" for kind in ("rand", "randn", "randint")}
UNDIFFERENTIABLE |= {"detach", "new_zeros", "new_ones", "new_full", "new_empty", "bernoulli"}
KEEPS_DTYPE = {"masked_fill", "where", "copy", "_to_copy", "fill"}
# Before 2.15 torch counts the steps of a range of 64-bit integers between its cut ends.
CUTS_ENDS = len(torch.arange(1.5, dtype=torch.int64, device="meta")) == 1


class Call:
    """How one operator is served."""

    def __init__(self, op, row: Row | None):
        self.op, self.row, self.signature = op, row, read(op)
        self.params = self.signature.params
        self.random = self.signature.random
        self.returns = len(op._schema.returns)
        self.kind = strides.order_of(op)
        self.view = self.kind == "view"
        self.factory = (
            not any(p.kind in ("array", "arrays") for p in self.params) and row is not None
        )
        scalar = ("number", "Optional[number]")
        scalars = [i for i, a in enumerate(op._schema.arguments) if str(a.real_type) in scalar]
        self.numbers = () if self.factory else scalars
        self.casts_inside = autocast.casts_inside(op)
        name = op._schema.name.split("::")[1]
        self.dtype_at = next((i for i, p in enumerate(self.params) if p.kind == "dtype"), None)
        self.writes = HIDDEN_WRITES.get(op, ())
        self.undifferentiable = name in UNDIFFERENTIABLE
        self.elementwise = torch.Tag.pointwise in op.tags
        self.pointwise = self.elementwise and name not in KEEPS_DTYPE
        self.range = name == "arange"
        self.keeps_scalars = name in KEEPS_SCALARS
        self.shifts = name in SHIFTS
        self.like = op.overloadpacket in LIKE
        self.compares = op.overloadpacket in COMPARES
        self.strided = op in strides.STRIDED
        self.chooses = op.overloadpacket in CHOOSES or op._schema.name == "torchvision::nms"
        parameters = self.signature.kept[1:] if self.random else self.signature.kept
        self._switches = [i for i, n in enumerate(parameters) if n in ("train", "training")]
        self._all = [i for i, n in enumerate(parameters) if n == "p" and self._switches]
        self._rates = [
            i
            for i, n in enumerate(parameters)
            if n in ("dropout_p", "dropout") or (n == "p" and self._switches)
        ]

    def bind(self, args, kwargs) -> tuple[list[Any], list[torch.Tensor]]:
        """Returns the lowering's arguments, and the tensors among the call's own."""
        values: list[Any] = []
        operands: list[torch.Tensor] = []
        positional = len(args)
        for i, p in enumerate(self.params):
            kind = p.kind
            if kind == "dropped":
                continue
            value = args[i] if i < positional else kwargs.get(p.name, p.default)
            if value is REQUIRED:
                raise TypeError(f"{self.op} misses its argument {p.name!r}")
            if kind == "dtype":
                if CUTS_ENDS and self.range and value is torch.int64:
                    values = [int(x) if isinstance(x, float) else x for x in values]
                value = dtypes.to_jax(value)
            elif kind == "array":
                if isinstance(value, torch.Tensor):
                    operands.append(value)
                    value = array_of(value)
                elif isinstance(value, (torch.SymInt, torch.SymFloat)):
                    value = sizes.to_jax(value, as_number=True)
                elif isinstance(value, torch.SymBool):
                    value = bool(value)  # the code goes both ways
            elif kind == "arrays":
                operands.extend(v for v in value if v is not None)
                value = [None if v is None else array_of(v) for v in value]
            elif isinstance(value, HOLDS_SIZES) and sizes.symbolic(value):
                value = sizes.to_jax(value, as_number=i in self.numbers)
            values.append(value)
        if self.pointwise:
            first = operands[0].dtype
            for x in operands:
                if x.dtype is not first:
                    self._promote(values, operands, args, kwargs)
                    break
        if self.shifts and isinstance(values[1], int) and operands[0].dtype is torch.int64:
            most = 1 << max(0, min(values[1], 62))
            fitting(np.array(most))  # says that torch's bits would be lost
        return values, operands

    def _promote(self, values: list[object], operands: list[torch.Tensor], args, kwargs) -> None:
        """Casts operands of several dtypes to torch's common one, in place.

        What makes floats of integers takes them as floats: the common one may not hold a scalar.
        """
        result = self.common(operands, values)
        if not result.is_floating_point and not result.is_complex:
            result = result_dtypes.floats(self.op, operands, args, kwargs) or result
        common = dtypes.to_jax(result)
        for i, value in enumerate(values):
            if isinstance(value, jax.Array) and value.dtype != common:
                if self.keeps_scalars and result.itemsize == 2 and value.dtype == jnp.float32:
                    continue
                values[i] = value.astype(common)

    def common(self, operands, values=()) -> torch.dtype:
        """torch's common dtype of tensors and numbers."""
        kinds = [(t.dtype, 2 if t.dim() else 1) for t in operands]
        numbers = [
            v
            for p, v in zip((p for p in self.params if p.kind != "dropped"), values)
            if p.kind == "array"
        ]
        kinds += [
            (dtypes.scalar_dtype(v), 0)
            for v in numbers
            if isinstance(v, (bool, int, float, complex))
        ]
        return dtypes.promote(kinds)

    def inert(self, values) -> bool:
        """Returns whether a random operator's own arguments say that nothing is drawn."""
        none = any(not values[i] for i in (*self._switches, *self._rates))
        return none or any(values[i] == 1 for i in self._all)

    def write(self, out, args, kwargs):
        """Stores what a hidden write computed; the lowering returns (result, *written values)."""
        result, *written = out
        bound = dict(zip((p.name for p in self.params), args)) | kwargs
        for name, array in zip(self.writes, written):
            target = bound.get(name)
            if array is None or target is None:
                continue
            if not isinstance(target, JaxTensor) or target.made_by is not None:
                raise Unsupported(
                    f"{self.op} would write to {name}, a constant or a view",
                    where=diagnostics.where(),
                    why="its new value would be lost",
                    do=f"register {name} as a buffer of a module, or pass it as an argument",
                )
            target.array, target.parts = array.astype(target.array.dtype), None
            target.limit = None
        return result

    def wrap(self, out, operands, origins, args, kwargs, place=0, make=JaxTensor):
        """JAX arrays in the result become tensors; anything else passes."""
        if isinstance(out, (tuple, list)):
            rest = operands, origins, args, kwargs
            items = [self.wrap(x, *rest, i, make) for i, x in enumerate(out)]
            return items if isinstance(out, list) else tuple(items)
        if not isinstance(out, jax.Array):
            return out
        dtype = dtypes.TO_TORCH[out.dtype]
        if dtype in result_dtypes.NARROW and not (
            dtype is torch.float32 and self.dtype_at is None and result_dtypes.is_single(operands)
        ):
            wide = x64()
            if dtype is torch.int32 or not wide:
                dtype = result_dtypes.dtype_of(self, dtype, operands, args, kwargs, place)
                out = out.astype(dtypes.TO_JAX[dtype]) if wide else out  # counted in int32
        layout = self.kind and strides.layout_of(
            self.kind, self.op, out.shape, operands, args, kwargs, place
        )
        if origins & GRADIENT and not (dtype.is_floating_point or dtype.is_complex):
            origins -= GRADIENT
        result = make(out, dtype, origins, layout)
        if self.view:
            result.made_by = (self.op, args, kwargs)
        return result

    def size(self, args) -> int:
        """Returns how many elements a factory makes, 0 if its first argument is no shape."""
        return sizes.count(args[0]) if args and isinstance(args[0], (list, tuple)) else 0


CALLS: dict[Any, tuple[int, Call]] = {}  # by operator, with the table's version


def call_of(op) -> Call:
    """Returns the (cached) way in which an operator is served now."""
    version, call = CALLS.get(op, (None, None))
    if call is None or version != table.version:
        row = table.find(op)
        call = call if call is not None and call.row is row else Call(op, row)
        CALLS[op] = table.version, call
    return call
