"""A node's attributes as Python values."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from anyjax.tensorflow.core import dtypes


def value_of(attr: Any) -> Any:
    """Returns the Python value of an ``AttrValue``: a number, string, numpy dtype or array, shape
    (None for an unknown size or rank), name of a function, or a list of these.
    """
    kind = attr.WhichOneof("value")
    if kind is None:
        return None
    if kind == "list":
        return next(
            (
                [_single(name, item) for item in getattr(attr.list, name)]
                for name in ("s", "i", "f", "b", "type", "shape", "tensor", "func")
                if getattr(attr.list, name)
            ),
            [],
        )
    return _single(kind, getattr(attr, kind))


def _single(kind: str, value: Any) -> Any:
    match kind:
        case "s":
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value  # serialized bytes
        case "type":
            return dtypes.to_jax(value)
        case "shape":
            return shape_of(value)
        case "tensor":
            return tf.make_ndarray(value)
        case "func":
            return value.name
        case _:
            return value


def shape_of(proto: Any) -> tuple[int | None, ...] | None:
    """Returns a ``TensorShapeProto`` as a tuple, None for an unknown rank."""
    if proto.unknown_rank:
        return None
    return tuple(None if d.size < 0 else int(d.size) for d in proto.dim)
