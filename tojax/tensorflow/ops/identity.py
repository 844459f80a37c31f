"""Operators that pass their input on: what they add is a check, a copy or no gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tojax.errors import Unsupported, WrongArguments
from tojax.tensorflow.core.known import is_known
from tojax.tensorflow.core.running import handles
from tojax.tensorflow.core.schema import lowers


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
    fits = wanted is None or (
        len(wanted) == len(found) and all(n is None or n == m for n, m in zip(wanted, found))
    )
    if not fits:
        raise WrongArguments(
            f"an array has the shape {tuple(found)}",
            why=f"the model ensures the shape {wanted}",
            do="give arguments of shapes that lead to this one",
        )
    return tuple(inputs)


@lowers("PreventGradient")
def prevent_gradient(input, message):
    @jax.custom_jvp
    def passed(x):
        return x

    @passed.defjvp
    def refuse(primals, tangents):
        raise Unsupported(
            "PreventGradient has no derivative",
            why=message or "the model says that nothing may be differentiated here",
            do="stop the gradient before it, or differentiate by something else",
        )

    return passed(input)


@lowers("CheckNumerics", "CheckNumericsV2")
def check_numerics(tensor, message):
    """TensorFlow raises for NaN and infinity, a program cannot: all values are NaN then."""
    return jnp.where(jnp.all(jnp.isfinite(tensor)), tensor, jnp.nan)
