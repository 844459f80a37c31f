"""Operators that only hold a graph together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.experimental import checkify

from tojax.errors import NoGradient, Unsupported, WrongValue
from tojax.stablehlo.core.static_values import is_known
from tojax.tensorflow.core.options import option
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.core.schema import lowers


@handles("Const")
def const(run, node, inputs):
    value = np.asarray(node.attr("value"))
    for wide in ("float32", "float64"):
        if value.dtype == wide and option(f"force_const_{wide}_to_bfloat16"):
            return (value.astype(ml_dtypes.bfloat16),)
    return (value,)


@handles("NoOp", "ControlTrigger", "Assert")
def nothing(run, node, inputs):
    return ()


class Text:
    """A string that is put together when the program runs: it can be printed, nothing else."""

    def __init__(self, template: str, values: Sequence[Any]):
        self.template, self.values = template, values

    def __jax_array__(self):
        raise Unsupported(
            "a text of values that are traced",
            where=f"StringFormat {self.template!r}",
            why="arrays of JAX hold no strings",
            do="print it, or return the values themselves",
        )

    shape = property(__jax_array__)


@lowers("StringFormat")
def string_format(inputs, template, placeholder, summarize):
    """Where it is known, TensorFlow has made the text already."""
    pieces = [x.replace("{", "{{").replace("}", "}}") for x in template.split(placeholder)]
    return Text("{}".join(pieces), inputs)


@handles("PrintV2")
def print_(run, node, inputs):
    """By ``jax.debug.print``, to the standard output."""
    text = inputs[0]
    if isinstance(text, Text):
        jax.debug.print(text.template, *text.values)
    else:
        print(text.item().decode())
    return ()


@handles("IdentityN")
def identity_n(run, node, inputs):
    return tuple(inputs)


# Operators that pass their input on: what they add is a check, a copy or no gradient.


@handles(
    "Identity", "Snapshot", "PlaceholderWithDefault", "GuaranteeConst", "CheckPinned", "Copy",
    "CopyHost", "DeepCopy",
)  # fmt: skip
def identity(run, node, inputs):
    return tuple(inputs[:1])


@handles("StopGradient")
def stop_gradient(run, node, inputs):
    return (inputs[0] if is_known(inputs[0]) else lax.stop_gradient(inputs[0]),)


@handles("EnsureShape")
def ensure_shape(run, node, inputs):
    wanted, found = node.attr("shape"), inputs[0].shape
    fits = lambda n, m: n is None or not isinstance(m, int) or n == m
    if wanted is not None and not (len(wanted) == len(found) and all(map(fits, wanted, found))):
        raise WrongValue(
            f"Expected shape={wanted}, found {tuple(found)}",
            why="the model ensures the shape of an array",
            do="give arguments of shapes that lead to this one",
        )
    return tuple(inputs)


@lowers("PreventGradient")
def prevent_gradient(input, message):
    if not option("raise_on_prevent_gradient"):
        return input

    @jax.custom_jvp
    def passed(x):
        return x

    @passed.defjvp
    def refuse(primals, tangents):
        raise NoGradient(
            message or "PreventGradient has no derivative",
            why="the model says that nothing may be differentiated here",
            do="stop the gradient before it, or differentiate by something else",
        )

    return passed(input)


@lowers("CheckNumerics", "CheckNumericsV2")
def check_numerics(tensor, message):
    """TensorFlow raises for NaN and infinity, a program cannot: all values are NaN then."""
    if option("enable_checkify_for_asserts"):
        checkify.check(~jnp.any(jnp.isnan(tensor)), f"{message} : Found NaN values")
        checkify.check(~jnp.any(jnp.isinf(tensor)), f"{message} : Found Inf values")
        return tensor
    return jnp.where(jnp.all(jnp.isfinite(tensor)), tensor, jnp.nan)
