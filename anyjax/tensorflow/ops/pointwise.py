"""Elementwise operators: arithmetic, bits, comparisons and logic, complex numbers, choosing."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics import division
from anyjax.stablehlo.core.static_values import as_jax, is_known
from anyjax.tensorflow.core.schema import Known, Static, lowers, table


def partials(*along: Callable | None) -> Callable[[Callable], Callable]:
    """Decorates a function with its partial derivatives by each argument: functions of the result
    and the arguments, or None for 0.
    """
    rule = lambda partial: partial and (lambda t, out, *args: t * partial(out, *args))

    def decorate(function):
        differentiable = jax.custom_jvp(function)
        differentiable.defjvps(*map(rule, along))
        return differentiable

    return decorate


absolute = partials(lambda _, x: lax.sign(x))(lax.abs)  # JAX has 1 at 0
acosh = partials(lambda _, x: lax.rsqrt(x - 1) * lax.rsqrt(x + 1))(lax.acosh)  # of any branch
maximum = partials(lambda _, x, y: x >= y, lambda _, x, y: ~(x >= y))(jnp.maximum)
minimum = partials(lambda _, x, y: x <= y, lambda _, x, y: ~(x <= y))(jnp.minimum)


def is_exact(x) -> bool:
    """Returns whether an array holds integers."""
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def zero_where(zero, function, x, y):
    """Returns function(x, y), and 0 where ``zero``, also in the gradient."""
    out = function(x, jnp.where(zero, np.ones((), y.dtype), y))
    return jnp.where(zero, np.zeros((), out.dtype), out)


def divide_no_nan(x, y):
    return zero_where(y == 0, jnp.divide, x, y)


def zero_times(function):
    """Makes ``function`` 0 where x is 0, whatever y is."""
    return lambda x, y: zero_where(
        jnp.broadcast_to(x == 0, jnp.broadcast_shapes(x.shape, y.shape)), function, x, y
    )


def multiply_no_nan(x, y):
    """Returns 0 where y is 0, even if x is infinite or NaN; the gradient by y is still x."""
    return jnp.where(y == 0, np.zeros((), x.dtype), x * y)


def _power_by_base(_, x, y):
    """Returns 0 for an exponent of 0, also at 0 where TensorFlow has no finite derivative."""
    if jnp.iscomplexobj(x):
        return y * power(x, y - 1)
    return jnp.where(y == 0, 0, y * jnp.power(x, jnp.where(y == 0, 1, y - 1).astype(y.dtype)))


def _power_by_exponent(out, x, y):
    """Returns 0 where the base has no real logarithm."""
    has_log = x != 0 if jnp.iscomplexobj(x) else x > 0
    return out * jnp.where(has_log, lax.log(jnp.where(has_log, x, np.ones((), x.dtype))), 0)


POWERS = {"i": division.integer_power, "u": division.integer_power, "c": division.complex_power}
power = partials(_power_by_base, _power_by_exponent)(
    lambda x, y: POWERS.get(x.dtype.kind, jnp.power)(x, y)
)


@lowers("Pow")
def pow_(x, y):
    """A small, known, integer exponent gives a product; so does its gradient, also at 0."""
    is_small = is_known(y) and not y.ndim and y in (-2, -1, 1, 2, 3, 4)
    if is_small and (y > 0 or not is_exact(x)):
        return lax.integer_pow(x, int(y.real))
    return power(x, y)


def truncate_divide(x, y):
    """Divides towards 0. TensorFlow refuses a divisor of 0; here the result is XLA's."""
    return lax.div(*jnp.broadcast_arrays(x, y))


def divide(x, y):
    return truncate_divide(x, y) if is_exact(x) else quotient(x, y)


def floor_divide(x, y):
    return jnp.floor_divide(x, y) if is_exact(x) else lax.floor(quotient(x, y))


def quotient(x, y):
    """Divides floats; a scalar divisor stays one."""
    if np.ndim(y):
        x, y = jnp.broadcast_arrays(x, y)
    return division.divide(x, y)


def truncate_mod(x, y):
    """Returns the remainder with the sign of x."""
    return lax.rem(*jnp.broadcast_arrays(x, y))


def squared_difference(x, y):
    gap = x - y
    return lax.square(gap) if not jnp.iscomplexobj(gap) else gap * lax.conj(gap)


def rounded(x):
    """Rounds, halves to even."""
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


# Bits of integers.


def _amount(x, y):
    """Clips a shift to 0 and the width less 1."""
    return jnp.clip(as_jax(y), 0, x.dtype.itemsize * 8 - 1).astype(x.dtype)


def _shifts_out(x, y) -> bool:
    """Returns whether 64-bit integers, of which JAX keeps 32 bits, are shifted by more than 31."""
    return is_known(y) and y.dtype.itemsize > x.dtype.itemsize and bool((np.asarray(y) > 31).any())


@lowers("LeftShift")
def left_shift(x, y: Known):
    if _shifts_out(x, y):
        raise Unsupported(
            "a shift of 64-bit integers by 32 bits or more",
            why="JAX keeps 32-bit integers unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first',
        )
    return jnp.left_shift(x, _amount(x, y))


@lowers("RightShift")
def right_shift(x, y: Known):
    out = jnp.right_shift(x, _amount(x, y))
    is_zero = _shifts_out(x, y) and x.dtype.kind == "u"
    return jnp.where(np.asarray(y) > 31, out.dtype.type(0), out) if is_zero else out


table.update(
    {
        "BitwiseAnd": jnp.bitwise_and,
        "BitwiseOr": jnp.bitwise_or,
        "BitwiseXor": jnp.bitwise_xor,
        "Invert": jnp.bitwise_not,
        "PopulationCount": lambda x: lax.population_count(x).astype(np.uint8),
    }
)


# Comparisons and logic.


def _unless_shapes_differ(function, otherwise):
    """Makes a lowering that returns ``otherwise`` for shapes that do not broadcast, or raises."""

    def lowering(x, y, incompatible_shape_error):
        if not incompatible_shape_error:
            try:
                np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                return np.asarray(otherwise)
        return function(x, y)

    return lowering


table.update(
    {
        "ApproximateEqual": lambda x, y, tolerance: jnp.abs(x - y) < tolerance,
        "Equal": _unless_shapes_differ(jnp.equal, False),
        "Greater": jnp.greater,
        "GreaterEqual": jnp.greater_equal,
        "IsFinite": lax.is_finite,
        "IsInf": jnp.isinf,
        "IsNan": lambda x: x != x,
        "Less": jnp.less,
        "LessEqual": jnp.less_equal,
        "LogicalAnd": jnp.logical_and,
        "LogicalNot": jnp.logical_not,
        "LogicalOr": jnp.logical_or,
        "NotEqual": _unless_shapes_differ(jnp.not_equal, True),
    }
)


# Complex numbers and their parts.


@jax.custom_jvp
def modulus(x, /):
    """The gradient at 0 is 0."""
    return lax.abs(x)


@modulus.defjvp
def _modulus_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    size = lax.abs(x)
    divisor = jnp.where(size == 0, np.ones((), size.dtype), size)
    return size, (lax.real(dx) * lax.real(x) + lax.imag(dx) * lax.imag(x)) / divisor


table.update(
    {
        "Angle": lambda input, Tout: lax.atan2(lax.imag(input), lax.real(input)),
        "Complex": lambda real, imag, Tout: lax.complex(*jnp.broadcast_arrays(real, imag)),
        "ComplexAbs": lambda x, Tout: modulus(x),
        "Conj": lambda input: jnp.conj(input),
        "Imag": lambda input, Tout: lax.imag(input),
        "Real": lambda input, Tout: lax.real(input),
    }
)


# Choosing by a mask.


@lowers("SelectV2")
def select(condition, t, e):
    return lax.select(*jnp.broadcast_arrays(condition, t, e))


@lowers("Select")
def select_v1(condition, t, e):
    """A vector chooses rows."""
    if 0 < condition.ndim < t.ndim:
        condition = lax.expand_dims(condition, range(condition.ndim, t.ndim))
    return select(condition, t, e)


@lowers("Where")
def where(input: Static):
    """The values decide how many places there are, so they must be known."""
    return np.argwhere(input)
