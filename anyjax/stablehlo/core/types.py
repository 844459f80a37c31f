"""MLIR's types as shapes and dtypes."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from jax.interpreters.mlir import ir

from anyjax.dtypes import canonical
from anyjax.errors import Unsupported

TOKEN = "token"
FLOATS = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz, "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "f8E4M3": ml_dtypes.float8_e4m3,
    "f8E3M4": ml_dtypes.float8_e3m4, "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "i1": np.bool_, "i2": ml_dtypes.int2, "i4": ml_dtypes.int4, "i8": np.int8, "i16": np.int16,
    "i32": np.int32, "i64": np.int64, "ui2": ml_dtypes.uint2, "ui4": ml_dtypes.uint4,
    "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64, "index": np.int64,
    "complex<f32>": np.complex64, "complex<f64>": np.complex128,
}  # fmt: skip


class Type(NamedTuple):
    """The shape of a tensor (None for an unknown size) and its dtype in the module."""

    shape: tuple[int | None, ...]
    wide: np.dtype

    @property
    def dtype(self) -> np.dtype:
        return canonical(self.wide)


def element(text: str) -> np.dtype:
    """Returns the dtype of an element type.

    Raises:
      Unsupported: JAX has no such dtype (quantized types).
    """
    if text not in FLOATS:
        raise Unsupported(
            f"arrays of {text}",
            why="JAX has no such dtype",
            do="dequantize before the module is exported",
        )
    return np.dtype(FLOATS[text])


def type_of(kind: ir.Type) -> Any:
    """Returns a ``Type``, TOKEN, or a tuple of these."""
    if isinstance(kind, ir.RankedTensorType):
        sizes = [None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)]
        return Type(tuple(sizes), element(str(kind.element_type)))
    if str(kind) in ("!stablehlo.token", "!mhlo.token"):
        return TOKEN
    if isinstance(kind, ir.TupleType):
        return tuple(type_of(kind.get_type(i)) for i in range(kind.num_types))
    raise Unsupported(
        f"values of the type {kind}", why="only tensors, tokens and tuples are known to JAX"
    )
