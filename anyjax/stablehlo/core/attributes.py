"""MLIR's attributes as Python values."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
from jax.interpreters.mlir import ir

from anyjax.errors import BadCheckpoint
from anyjax.stablehlo.core.private import chlo, classes, stablehlo
from anyjax.stablehlo.core.types import Type, type_of

PLAIN = (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr, ir.FlatSymbolRefAttr)
_BOTH = "ComparisonDirectionAttr ComparisonTypeAttr PrecisionAttr"
_OWN = "RngAlgorithmAttr RngDistributionAttr TransposeAttr FftTypeAttr"
WORDS = classes(stablehlo, f"{_BOTH} {_OWN}") + classes(chlo, _BOTH)
_NUMBERS = "Conv{0} Dot{0} Gather{0} Scatter{0} DotAlgorithm".format("DimensionNumbers")
RECORDS = classes(stablehlo, _NUMBERS) + classes(chlo, "RaggedDotDimensionNumbers")
LISTS = (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr, ir.DenseBoolArrayAttr)


def value_of(attribute: ir.Attribute | None) -> Any:
    """Returns a number, a word, a list, a dict, a numpy array, or a record with its fields."""
    if attribute is None:
        return None
    if isinstance(attribute, PLAIN):
        return attribute.value
    if isinstance(attribute, ir.StringAttr):
        return attribute.value_bytes.decode(errors="surrogateescape")
    if isinstance(attribute, LISTS):
        return list(attribute)
    if isinstance(attribute, ir.DenseElementsAttr):
        return dense(str(attribute), attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return [value_of(x) for x in attribute]
    if isinstance(attribute, ir.DictAttr):
        return {attribute[i].name: value_of(attribute[i].attr) for i in range(len(attribute))}
    if isinstance(attribute, ir.UnitAttr):
        return True
    for kind in WORDS:
        if kind.isinstance(attribute):
            return kind(attribute).value
    for record in RECORDS:
        if record.isinstance(attribute):
            return _record(record(attribute))
    return str(attribute)


def _record(attribute: ir.Attribute) -> SimpleNamespace:
    fields = [k for k, v in vars(type(attribute)).items() if isinstance(v, property)]
    convert = lambda v: v if isinstance(v, int) else str(v) if isinstance(v, ir.Type) else [*v]
    return SimpleNamespace(**{k: convert(getattr(attribute, k)) for k in fields})


def constant(op: ir.OpView) -> np.ndarray:
    """Reads a constant; complex numbers from its text, as Python's bindings lack them."""
    try:
        attribute = op.attributes["value"]
    except TypeError:
        return dense(str(op.get_asm()), None, type_of(op.results[0].type))
    return dense(None, attribute, type_of(op.results[0].type))


def dense(text: str | None, attribute: Any, kind: Any = None) -> np.ndarray:
    """Returns a ``dense<...>`` as a numpy array."""
    kind = kind or type_of(attribute.type)
    if kind.wide.kind == "c":  # numpy reads a single one as an object
        return _parsed(text or str(attribute), kind)
    try:
        return np.array(attribute).astype(kind.wide, copy=False).reshape(kind.shape)
    except (TypeError, ValueError):
        return _parsed(text or str(attribute), kind)


def _parsed(text: str, kind: Type) -> np.ndarray:
    """Parses a text: one number for all, a list, or the bytes in hexadecimal digits."""
    match = re.search(r'dense<("0x[0-9A-Fa-f]*"|[^>]*)>', text)
    if match is None:
        raise BadCheckpoint(
            "a constant has no values",
            why="its text leaves large constants out (__elided__) or keeps them apart (resources)",
            do="write the module as bytecode, or without an elements limit",
        )
    content = match[1]
    if content.startswith('"'):
        return _filled(np.frombuffer(bytes.fromhex(content[3:-1]), kind.wide), kind)
    words = re.findall(r"0x[0-9A-Fa-f]+|-?[\w.+-]+", content)
    if kind.wide.kind == "c":
        real = kind.wide.type(0).real.dtype
        numbers = np.array([_number(x, real) for x in words], real).view(kind.wide)
    else:
        numbers = np.array([_number(x, kind.wide) for x in words], kind.wide)
    return _filled(numbers, kind)


def _filled(numbers: np.ndarray, kind: Any) -> np.ndarray:
    """Returns the numbers in their shape; one number stands for all."""
    if numbers.size == 1:
        return np.full(kind.shape, numbers[0])
    return numbers.reshape(kind.shape).copy()


def _number(text: str, dtype: np.dtype) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x"):
        bits = np.array(int(text, 16), f"u{dtype.itemsize}")
        return bits.view(dtype)[()]
    return float(text) if "." in text or "e" in text else int(text)
