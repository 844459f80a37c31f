"""Nodes that JAX cannot have: strings, lookup tables, and Python called from a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from anyjax.errors import Unsupported
from anyjax.tensorflow.core.nodes import Node
from anyjax.tensorflow.core.private import op_def_of

PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}
SILENT = {"Assert", "Print", "PrintV2"}  # they have no values
TABLES = ("LookupTable", "InitializeTable", "HashTable", "MutableHashTable", "MutableDenseHash")
SERVED = ("LookupTableFindV2", "LookupTableSizeV2")  # where keys and values are numbers
SPLIT = "preprocess, model = anyjax.tensorflow.split_preprocessing(fn, *specs)"


def types(proto: Any, which: str) -> list[int]:
    """Returns the ``DataType`` of each input ("input_arg") or output ("output_arg") of a node."""
    dtypes: list[int] = []
    attr, definition = proto.attr, op_def_of(proto.op)
    for arg in getattr(definition, which) if definition is not None else ():
        if arg.type_list_attr:
            dtypes += attr[arg.type_list_attr].list.type
            continue
        kind = attr[arg.type_attr].type if arg.type_attr else arg.type
        dtypes += [kind] * (attr[arg.number_attr].i if arg.number_attr else 1)
    return dtypes


def kind_of(proto: Any) -> str:
    """Returns the kind of a ``NodeDef``: "Python", "a lookup table", "strings" or ""."""
    if proto.op in PYTHON:
        return "Python"
    if proto.op in SILENT:
        return ""
    strings = tf.string.as_datatype_enum
    texts = strings in (*types(proto, "input_arg"), *types(proto, "output_arg"))
    if proto.op.startswith(TABLES):
        return "a lookup table" if texts or proto.op not in SERVED else ""
    return "strings" if texts else ""


def functions(proto: Any) -> Iterable[str]:
    """Yields the names of the functions that a ``NodeDef`` calls."""
    for attr in proto.attr.values():
        if attr.func.name:
            yield attr.func.name
        yield from (f.name for f in attr.list.func)


def uses_text(proto: Any, library: Mapping[str, Any]) -> bool:
    """Returns whether a ``NodeDef``, or a node of a function that it calls in ``library``, is of
    one of these kinds.
    """
    if kind_of(proto):
        return proto.op != "Const"
    return any(
        uses_text(node, library)
        for name in functions(proto)
        if name in library
        for node in library[name].node_def
    )


def refuse_text(node: Node) -> None:
    """Raises Unsupported for a node of these kinds."""
    kind = kind_of(node.proto)
    if kind == "Python":
        raise Unsupported(
            f"{node.op} calls Python (tf.py_function or tf.numpy_function)",
            why="a graph only holds a number for the Python function, which JAX cannot trace",
            do=f"write it with TensorFlow's operators, or keep it out of the model: {SPLIT}",
        )
    if kind:
        raise Unsupported(
            f"{node.op} works on {kind}",
            why="JAX has arrays of numbers only, and the input is not known before the call",
            do=f"split it off: {SPLIT}; model(*preprocess(text))",
        )


def refused(name: str, where: str) -> Unsupported:
    """Returns the error for an argument of strings."""
    return Unsupported(
        f"the argument {name!r} is of strings",
        where=where,
        why="JAX has arrays of numbers only",
        do=f"split the part on strings off: {SPLIT}; model(*preprocess(text))",
    )
