"""Resource variables: a handle stands for a variable, the run holds its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported, WrongValue
from anyjax.tensorflow.core import dtypes
from anyjax.tensorflow.core.running import Running, handles

WIDE = 9, 23  # tf.int64 and tf.uint64


@dataclass(frozen=True)
class Handle:
    """A variable, by its name in the params or the state."""

    name: str


@handles("VarHandleOp")
def var_handle(run, node, inputs):
    handle = Handle(node.attr("shared_name") or node.name)
    if handle not in run.variables:
        raise WrongValue(
            f"VarHandleOp `{handle.name}` cannot be evaluated",
            why="the model has no variable of that name",
            do="convert a function that captures the variable",
        )
    return (handle,)


@handles("ReadVariableOp")
def read(run, node, inputs):
    return (reading(run, inputs[0]),)


@jax.custom_jvp
def _differentiated_as(variable, value):
    return value


_differentiated_as.defjvps(lambda tangent, *_: tangent, None)


def reading(run: Running, handle: Handle) -> Any:
    """Returns the current value of a variable, differentiated as TensorFlow's tapes do: by the
    variable itself with derivative 1, and not by the values that were assigned to it.
    """
    value, initial = value_of(run, handle), run.initial.get(handle)
    if value is initial or not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    if initial is None or (initial.shape, initial.dtype) != (value.shape, value.dtype):
        return lax.stop_gradient(value)
    return _differentiated_as(initial, value)


def value_of(run: Running, handle: Handle) -> Any:
    """Returns the current value of a variable."""
    if run.variables.get(handle) is None:
        raise Unsupported(
            f"the variable {handle.name!r} is read before it has a value",
            why="nothing assigned one, and the model holds none",
            do="initialise the variable before converting",
        )
    return run.variables[handle]


def store(run: Running, handle: Handle, value: object) -> tuple:
    """Assigns a new value to a variable."""
    run.variables[handle] = value
    run.written.add(handle)
    return ()


@handles("AssignVariableOp")
def assign(run, node, inputs):
    handle, value = inputs
    return store(run, handle, jnp.asarray(value))


@handles("AssignAddVariableOp")
def assign_add(run, node, inputs):
    return _sum(run, node, jnp.add, inputs)


@handles("AssignSubVariableOp")
def assign_sub(run, node, inputs):
    return _sum(run, node, jnp.subtract, inputs)


def _sum(run, node, function, inputs):
    arguments = [value_of(run, inputs[0]), inputs[1]]
    new = function(*arguments)
    if node.proto.attr["dtype"].type in WIDE:
        run.checks.note(node.op, function, arguments, new)
    return store(run, inputs[0], new)


@handles("VarIsInitializedOp")
def initialized(run, node, inputs):
    return (np.asarray(run.variables.get(inputs[0]) is not None),)


@handles("VariableShape")
def shape(run, node, inputs):
    dtype = (
        dtypes.to_numpy(node.proto.attr["out_type"].type)
        if "out_type" in node.proto.attr
        else np.int32
    )
    return (np.asarray(value_of(run, inputs[0]).shape, dtype),)


@handles("DestroyResourceOp")
def destroy(run, node, inputs):
    run.variables.pop(inputs[0], None)
    return ()
