"""Variables of TensorFlow 1 whose operators hand on a reference instead of a resource.

A reference is the Handle of a resource variable; where an operator takes its value, a read is put
into the graph before that operator.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from tojax.stablehlo.core.static_values import as_jax
from tojax.tensorflow.core.private import op_def_of
from tojax.tensorflow.core.running import HANDLERS, handles
from tojax.tensorflow.core.schema import sizes
from tojax.tensorflow.state import parts
from tojax.tensorflow.state.optimizers import RULES, dense, sparse
from tojax.tensorflow.state.variables import store, value_of, var_handle

REFERENCES = ("VariableV2", "Variable")
VARIABLES = ("VarHandleOp", *REFERENCES)
HANDLERS.update(dict.fromkeys(REFERENCES, var_handle))


def dereferenced(proto: Any) -> Any:
    """A ``GraphDef`` in which values of references are read explicitly."""
    if not any(node.op in REFERENCES for node in proto.node):
        return proto
    given = {node.name: _references(node, "output_arg") for node in proto.node}
    made = type(proto)(library=proto.library, versions=proto.versions)
    for node in proto.node:
        copy = made.node.add()
        copy.CopyFrom(node)
        controls = [x for x in node.input if x.startswith("^")]
        for i, wanted in enumerate(_references(node, "input_arg")):
            name, _, at = node.input[i].partition(":")
            if wanted or not any(given.get(name, [])[int(at or 0) :][:1]):
                continue
            # after whatever the operator waits for
            inputs = [node.input[i], *controls]
            read = made.node.add(name=f"{node.name}/read {i}", op="ReadVariableOp", input=inputs)
            copy.input[i] = read.name
    return made


def _references(node: Any, which: str) -> list[bool]:
    """Which of the inputs or outputs of a node are references."""
    if (definition := op_def_of(node.op)) is None:
        return []
    found: list[bool] = []
    counts = sizes(node.op, node.attr, outputs=which == "output_arg")
    for arg, count in zip(getattr(definition, which), counts):
        found += [arg.is_ref] * (1 if count is None else count)
    return found


def _handing_on(handler: Any) -> Any:
    """A handler whose operator also hands on the reference that it wrote to."""

    def handles_reference(run, node, inputs):
        handler(run, node, inputs)
        return (inputs[0],)

    return handles_reference


def _changed(change: Any) -> Any:
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


HANDLERS["AssignAdd"] = _changed(lambda held, value: held + value)
HANDLERS["AssignSub"] = _changed(lambda held, value: held - value)


@handles("IsVariableInitialized")
def initialized(run, node, inputs):
    return (np.asarray(run.variables.get(inputs[0]) is not None),)


@handles("RefIdentity")
def same(run, node, inputs):
    return tuple(inputs)


for _name, _write in parts.WRITES.items():
    HANDLERS[f"Scatter{_name}"] = _handing_on(parts.rows(_write))
for _name in ("Update", "Add", "Sub", "Min", "Max"):
    HANDLERS[f"ScatterNd{_name}"] = _handing_on(parts.positions(parts.WRITES[_name]))
HANDLERS["StridedSliceAssign"] = _handing_on(parts.assign_slice)
for _name, _rule in RULES.items():
    for _op, _serve in ((f"Apply{_name}", dense), (f"SparseApply{_name}", sparse)):
        if op_def_of(_op) is not None:
            HANDLERS[_op] = _handing_on(partial(_serve, _rule))
