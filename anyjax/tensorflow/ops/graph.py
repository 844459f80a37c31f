"""Operators that hold a graph together: constants, texts, identities and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.experimental import checkify

from anyjax.errors import NoGradient, Unsupported, WrongValue
from anyjax.stablehlo.core.static_values import is_known
from anyjax.tensorflow.core.options import option
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.core.schema import lowers


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
    """A string that is made when the program runs: it can only be printed."""

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
    """Serves traced values only: a known text comes from TensorFlow."""
    pieces = [x.replace("{", "{{").replace("}", "}}") for x in template.split(placeholder)]
    return Text("{}".join(pieces), inputs)


@handles("PrintV2")
def print_(run, node, inputs):
    """Prints to the standard output, traced values by ``jax.debug.print``."""
    text = inputs[0]
    if isinstance(text, Text):
        jax.debug.print(text.template, *text.values)
    else:
        print(text.item().decode())
    return ()


# Operators that return their input: as it is, without a gradient, or after a check.


@handles(
    "Identity", "Snapshot", "PlaceholderWithDefault", "GuaranteeConst", "CheckPinned", "Copy",
    "CopyHost", "DeepCopy",
)  # fmt: skip
def identity(run, node, inputs):
    return tuple(inputs[:1])


@handles("IdentityN")
def identity_n(run, node, inputs):
    return tuple(inputs)


@handles("StopGradient")
def stop_gradient(run, node, inputs):
    return (inputs[0] if is_known(inputs[0]) else lax.stop_gradient(inputs[0]),)


@handles("EnsureShape")
def ensure_shape(run, node, inputs):
    expected, shape = node.attr("shape"), inputs[0].shape
    fits = lambda n, m: n is None or not isinstance(m, int) or n == m
    if expected is not None and not (
        len(expected) == len(shape) and all(map(fits, expected, shape))
    ):
        raise WrongValue(
            f"Expected shape={expected}, found {tuple(shape)}",
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
    """TensorFlow raises for NaN and infinity; a program cannot, so all values become NaN."""
    if option("enable_checkify_for_asserts"):
        checkify.check(~jnp.any(jnp.isnan(tensor)), f"{message} : Found NaN values")
        checkify.check(~jnp.any(jnp.isinf(tensor)), f"{message} : Found Inf values")
        return tensor
    return jnp.where(jnp.all(jnp.isfinite(tensor)), tensor, jnp.nan)
