"""Elementwise arithmetic."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
from jax import lax

from tojax import division
from tojax.tensorflow.core.known import is_known
from tojax.tensorflow.core.schema import lowers, table
from tojax.tensorflow.ops._derivative import partials

absolute = partials(lambda _, x: lax.sign(x))(lax.abs)  # JAX has 1 at 0
acosh = partials(lambda _, x: lax.rsqrt(x - 1) * lax.rsqrt(x + 1))(lax.acosh)  # of any branch
maximum = partials(lambda _, x, y: x >= y, lambda _, x, y: ~(x >= y))(jnp.maximum)
minimum = partials(lambda _, x, y: x <= y, lambda _, x, y: ~(x <= y))(jnp.minimum)


def is_exact(x) -> bool:
    """Whether an array holds integers."""
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def zero_where(zero, function, x, y):
    """function(x, y), and 0 where ``zero``, also in the gradient."""
    out = function(x, jnp.where(zero, np.ones((), y.dtype), y))
    return jnp.where(zero, np.zeros((), out.dtype), out)


def divide_no_nan(x, y):
    return zero_where(y == 0, jnp.divide, x, y)


def zero_times(function):
    """x times (or through) something of y, 0 where x is 0 whatever y is."""
    return lambda x, y: zero_where(
        jnp.broadcast_to(x == 0, jnp.broadcast_shapes(x.shape, y.shape)), function, x, y
    )


def multiply_no_nan(x, y):
    """0 where y is 0, even if x is infinite or NaN; the gradient by y is x there as well."""
    return jnp.where(y == 0, np.zeros((), x.dtype), x * y)


def _log_base(_, x, y):
    """The derivative of a power by its exponent: 0 where the base has no real logarithm."""
    good = x != 0 if jnp.iscomplexobj(x) else x > 0
    return _ * jnp.where(good, lax.log(jnp.where(good, x, np.ones((), x.dtype))), 0)


def _less_one(_, x, y):
    """A real power of 0 has the derivative 0, where TensorFlow's is none."""
    if jnp.iscomplexobj(x):
        return y * power(x, y - 1)
    return jnp.where(y == 0, 0, y * jnp.power(x, jnp.where(y == 0, 1, y - 1).astype(y.dtype)))


POWERS = {"i": division.integer_power, "u": division.integer_power, "c": division.complex_power}
power = partials(_less_one, _log_base)(lambda x, y: POWERS.get(x.dtype.kind, jnp.power)(x, y))


@lowers("Pow")
def pow_(x, y):
    """A small integer exponent that is known is a product; so is the gradient, also at 0."""
    known = is_known(y) and not y.ndim and y in (-2, -1, 1, 2, 3, 4)
    if known and (y > 0 or not is_exact(x)):
        return lax.integer_pow(x, int(y.real))
    return power(x, y)


def truncate_divide(x, y):
    """Towards 0. By 0, which TensorFlow refuses, the result is what XLA makes of it."""
    return lax.div(*jnp.broadcast_arrays(x, y))


def divide(x, y):
    return truncate_divide(x, y) if is_exact(x) else quotient(x, y)


def floor_divide(x, y):
    return jnp.floor_divide(x, y) if is_exact(x) else lax.floor(quotient(x, y))


def quotient(x, y):
    """Of floats; the scalar stays one."""
    if np.ndim(y):
        x, y = jnp.broadcast_arrays(x, y)
    return division.divide(x, y)


def truncate_mod(x, y):
    """With the sign of x."""
    return lax.rem(*jnp.broadcast_arrays(x, y))


def squared_difference(x, y):
    gap = x - y
    return lax.square(gap) if not jnp.iscomplexobj(gap) else gap * lax.conj(gap)


def rounded(x):
    """Half to even."""
    return x if is_exact(x) else lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def add_n(inputs):
    return functools.reduce(jnp.add, inputs)


table.update(
    {
        # of one array
        "Abs": absolute,
        "Acos": lax.acos,
        "Acosh": acosh,
        "Asin": lax.asin,
        "Asinh": lax.asinh,
        "Atan": lax.atan,
        "Atanh": lax.atanh,
        "Ceil": lax.ceil,
        "Cos": lax.cos,
        "Cosh": lax.cosh,
        "Exp": lax.exp,
        "Expm1": lax.expm1,
        "Floor": lax.floor,
        "Inv": lax.reciprocal,
        "Log": lax.log,
        "Log1p": lax.log1p,
        "Neg": lax.neg,
        "Reciprocal": lax.reciprocal,
        "Rint": rounded,
        "Round": rounded,
        "Rsqrt": lax.rsqrt,
        "Sigmoid": lax.logistic,
        "Sign": lambda x: lax.stop_gradient(lax.sign(x)),
        "Sin": lax.sin,
        "Sinh": lax.sinh,
        "Sqrt": lax.sqrt,
        "Square": lax.square,
        "Tan": lax.tan,
        "Tanh": lax.tanh,
        # of two
        "Add": jnp.add,
        "AddV2": jnp.add,
        "Atan2": jnp.arctan2,
        "Div": divide,
        "DivNoNan": divide_no_nan,
        "FloorDiv": floor_divide,
        "FloorMod": jnp.remainder,
        "Maximum": maximum,
        "Minimum": minimum,
        "Mod": truncate_mod,
        "Mul": jnp.multiply,
        "MulNoNan": partials(
            lambda _, x, y: multiply_no_nan(jnp.ones_like(x), y),
            lambda _, x, y: jnp.broadcast_to(x, _.shape),
        )(multiply_no_nan),
        "NextAfter": partials(lambda _, x, y: jnp.ones_like(_), None)(jnp.nextafter),
        "RealDiv": divide,
        "SquaredDifference": squared_difference,
        "Sub": jnp.subtract,
        "TruncateDiv": truncate_divide,
        "TruncateMod": truncate_mod,
        "Xdivy": zero_times(jnp.divide),
        "Xlog1py": zero_times(lambda x, y: x * lax.log1p(y)),
        "Xlogy": zero_times(lambda x, y: x * lax.log(y)),
        # of several
        "AccumulateNV2": lambda inputs, shape: add_n(inputs),
        "AddN": add_n,
        "Cross": jnp.cross,
    }
)


@lowers("ClipByValue")
def clip_by_value(t, clip_value_min, clip_value_max):
    """At a bound the gradient is that of the value."""
    low, high = clip_value_min, clip_value_max
    return jnp.where(t < low, low, jnp.where(t > high, high, t))
