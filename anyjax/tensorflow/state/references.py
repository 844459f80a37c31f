"""Variables of TensorFlow 1 whose operators return a reference instead of a resource.

A reference is the Handle of a resource variable; the graph gets a read before each operator that
takes its value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.stablehlo.core.static_values import as_jax
from anyjax.tensorflow.core.private import op_def_of
from anyjax.tensorflow.core.running import HANDLERS, handles
from anyjax.tensorflow.core.schema import sizes
from anyjax.tensorflow.state import parts
from anyjax.tensorflow.state.optimizers import RULES, dense, sparse
from anyjax.tensorflow.state.variables import store, value_of, var_handle

REFERENCES = ("VariableV2", "Variable")
VARIABLES = ("VarHandleOp", *REFERENCES)
HANDLERS.update(dict.fromkeys(REFERENCES, var_handle))


def dereferenced(proto: Any) -> Any:
    """Returns a ``GraphDef`` in which values of references are read explicitly."""
    if not any(node.op in REFERENCES for node in proto.node):
        return proto
    references = {node.name: _references(node, "output_arg") for node in proto.node}
    graph = type(proto)(library=proto.library, versions=proto.versions)
    for node in proto.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        controls = [x for x in node.input if x.startswith("^")]
        for i, takes_reference in enumerate(_references(node, "input_arg")):
            name, _, at = node.input[i].partition(":")
            if takes_reference or not any(references.get(name, [])[int(at or 0) :][:1]):
                continue
            # after all that the operator waits for
            inputs = [node.input[i], *controls]
            read = graph.node.add(name=f"{node.name}/read {i}", op="ReadVariableOp", input=inputs)
            copy.input[i] = read.name
    return graph


def _references(node: Any, which: str) -> list[bool]:
    """Returns for each input or output of a node whether it is a reference."""
    if (definition := op_def_of(node.op)) is None:
        return []
    is_reference: list[bool] = []
    counts = sizes(node.op, node.attr, outputs=which == "output_arg")
    for arg, count in zip(getattr(definition, which), counts):
        is_reference += [arg.is_ref] * (1 if count is None else count)
    return is_reference


def _returning_reference(handler: Callable) -> Any:
    def handles_reference(run, node, inputs):
        handler(run, node, inputs)
        return (inputs[0],)

    return handles_reference


def _updating(change: Callable[..., jax.Array]) -> Any:
    """Makes a handler that stores ``change(value, input)``."""

    def handler(run, node, inputs):
        handle, value = inputs
        store(run, handle, change(value_of(run, handle), as_jax(value)))
        return (handle,)

    return handler


@handles("Assign")
def assign(run, node, inputs):
    handle, value = inputs
    store(run, handle, jnp.asarray(as_jax(value)))
    return (handle,)


HANDLERS["AssignAdd"] = _updating(lambda x, value: x + value)
HANDLERS["AssignSub"] = _updating(lambda x, value: x - value)


@handles("IsVariableInitialized")
def initialized(run, node, inputs):
    return (np.asarray(run.variables.get(inputs[0]) is not None),)


@handles("RefIdentity")
def same(run, node, inputs):
    return tuple(inputs)


for _name, _write in parts.WRITES.items():
    HANDLERS[f"Scatter{_name}"] = _returning_reference(parts.rows(_write))
for _name in ("Update", "Add", "Sub", "Min", "Max"):
    HANDLERS[f"ScatterNd{_name}"] = _returning_reference(parts.positions(parts.WRITES[_name]))
HANDLERS["StridedSliceAssign"] = _returning_reference(parts.assign_slice)
for _name, _rule in RULES.items():
    for _op, _serve in ((f"Apply{_name}", dense), (f"SparseApply{_name}", sparse)):
        if op_def_of(_op) is not None:
            HANDLERS[_op] = _returning_reference(partial(_serve, _rule))
