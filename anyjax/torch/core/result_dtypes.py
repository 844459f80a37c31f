"""The dtype that torch would have given a result, where JAX has only its 32-bit half.

JAX cannot tell int32 from a narrowed int64, but torch code decides by dtypes. torch is asked
itself, once for each combination of an operator, its operands' dtypes and its flags.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from anyjax.errors import DataDependent
from anyjax.torch.core import sizes, strides
from anyjax.torch.core.dtypes import WIDE
from anyjax.torch.core.pytrees import map_tensors

NARROW = set(WIDE.values())
DOUBLE = {torch.float64, torch.complex128}
KNOWN: dict[Any, torch.dtype | None] = {}


def dtype_of(call, dtype: torch.dtype, operands, args, kwargs, place: int) -> torch.dtype:
    """torch's dtype of result number ``place``, which JAX has as ``dtype``, a narrow one."""
    torch_dtype = kwargs.get("dtype")
    if torch_dtype is None and call.dtype_at is not None and len(args) > call.dtype_at:
        torch_dtype = args[call.dtype_at]
    if torch_dtype is None:
        operand_dtypes = {t.dtype for t in operands}
        if operand_dtypes == {torch.int64} and call.pointwise and dtype is torch.int32:
            return torch.int64
        if (dtype.is_floating_point or dtype.is_complex) and is_single(operands):
            return dtype
        torch_dtype = _by_torch(call.op, operands, args, kwargs, place)
    return torch_dtype if WIDE.get(torch_dtype) is dtype else dtype


def is_single(operands) -> bool:
    """Returns whether no operand, nor torch's default, has floats of 64 bits."""
    for x in operands:
        if x.dtype in DOUBLE:
            return False
    return torch.get_default_dtype() is not torch.float64


def floats(op, operands, args, kwargs) -> torch.dtype | None:
    """torch's floating dtype of the result for these operands, None if it is no floating one."""
    dtype = _by_torch(op, operands, args, kwargs, 0)
    return dtype if dtype is not None and dtype.is_floating_point else None


def _by_torch(op, operands, args, kwargs, place: int) -> torch.dtype | None:
    """Returns torch's own dtype for these dtypes and flags, None where it cannot be asked."""
    flag = lambda v: v if isinstance(v, (bool, torch.dtype)) else type(v)
    flags = tuple(map(flag, args)), tuple((k, flag(v)) for k, v in kwargs.items())
    kinds = tuple((t.dtype, t.dim() > 0) for t in operands)
    key = (op, place, flags, kinds, torch.get_default_dtype())
    if key not in KNOWN:
        KNOWN[key] = _ask(op, args, kwargs, place)
    return KNOWN[key]


def _ask(op, args, kwargs, place: int) -> torch.dtype | None:
    """By shapes alone; by small tensors where the values decide the shape or the shape function
    refuses mixed dtypes that the kernel takes.
    """
    makes = any(a.name == "device" for a in op._schema.arguments)
    on_meta = {"device": torch.device("meta")} if makes else {}
    for stand_in, extra in ((strides.to_meta, on_meta), (_small, {})):
        meta_args, named = map_tensors(stand_in, (args, kwargs))
        shapes = [x.shape for x in (*meta_args, *named.values()) if isinstance(x, torch.Tensor)]
        open_sizes = sizes.symbolic((meta_args, shapes))
        try:
            with sizes.generally() if open_sizes else contextlib.nullcontext():
                out = op(*meta_args, **{**named, **extra})
        except (RuntimeError, DataDependent):
            continue
        return (out[place] if isinstance(out, (tuple, list)) else out).dtype
    return next((t.dtype for t in args if isinstance(t, torch.Tensor)), None)


def _small(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros([min(sizes.limits(n)[1], 1) for n in tensor.shape], dtype=tensor.dtype)
