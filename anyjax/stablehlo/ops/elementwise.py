"""Elementwise operations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics.division import integer_power
from anyjax.stablehlo.core.schema import lowers, table
from anyjax.stablehlo.core.static_values import Known, as_jax, is_known


def logical(arithmetic, boolean):
    """Makes an operation that also takes booleans, as StableHLO's do and JAX's do not."""
    return lambda x, y, /: (boolean if x.dtype == bool else arithmetic)(x, y)


COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}

table.update(
    {
        "stablehlo.abs": lax.abs,
        "stablehlo.add": logical(lax.add, lax.bitwise_or),
        "stablehlo.and": lax.bitwise_and,
        "stablehlo.atan2": lax.atan2,
        "stablehlo.cbrt": lax.cbrt,
        "stablehlo.ceil": lax.ceil,
        "stablehlo.clamp": lambda low, operand, high, /: lax.clamp(low, operand, high),
        "stablehlo.complex": lax.complex,
        "stablehlo.cosine": lax.cos,
        "stablehlo.count_leading_zeros": lax.clz,
        "stablehlo.divide": lax.div,
        "stablehlo.exponential": lax.exp,
        "stablehlo.exponential_minus_one": lax.expm1,
        "stablehlo.floor": lax.floor,
        "stablehlo.imag": lambda x, /: lax.imag(x) if jnp.iscomplexobj(x) else jnp.zeros_like(x),
        "stablehlo.is_finite": lax.is_finite,
        "stablehlo.log": lax.log,
        "stablehlo.log_plus_one": lax.log1p,
        "stablehlo.logistic": lax.logistic,
        "stablehlo.maximum": logical(lax.max, lax.bitwise_or),
        "stablehlo.minimum": logical(lax.min, lax.bitwise_and),
        "stablehlo.negate": lax.neg,
        "stablehlo.not": lax.bitwise_not,
        "stablehlo.or": lax.bitwise_or,
        "stablehlo.popcnt": lax.population_count,
        "stablehlo.power": lambda x, y, /: power(x, y),
        "stablehlo.real": lambda x, /: lax.real(x) if jnp.iscomplexobj(x) else x,
        "stablehlo.remainder": lax.rem,
        "stablehlo.round_nearest_afz": lambda x, /: lax.round(x),
        "stablehlo.round_nearest_even": lambda x, /: lax.round(
            x, lax.RoundingMethod.TO_NEAREST_EVEN
        ),
        "stablehlo.rsqrt": lax.rsqrt,
        "stablehlo.shift_left": lax.shift_left,
        "stablehlo.shift_right_arithmetic": lax.shift_right_arithmetic,
        "stablehlo.shift_right_logical": lax.shift_right_logical,
        "stablehlo.sign": lax.sign,
        "stablehlo.sine": lax.sin,
        "stablehlo.sqrt": lax.sqrt,
        "stablehlo.subtract": lax.sub,
        "stablehlo.tan": lax.tan,
        "stablehlo.tanh": lax.tanh,
        "stablehlo.xor": lax.bitwise_xor,
    }
)


@lowers("stablehlo.multiply")
def multiply(lhs: Known, rhs: Known):
    """A product with infinity has no gradient: a select seldom takes it (erf_inv has one for -1
    and 1), and infinity times a cotangent of 0 is NaN.
    """
    infinite = [is_known(x) and x.dtype.kind == "f" and np.isinf(x).all() for x in (lhs, rhs)]
    lhs, rhs = as_jax(lhs), as_jax(rhs)
    if any(infinite):
        lhs, rhs = lax.stop_gradient(lhs), lax.stop_gradient(rhs)
    return (lax.bitwise_and if lhs.dtype == bool else lax.mul)(lhs, rhs)


def power(x, y):
    """Returns powers, of integers too."""
    integers = jnp.issubdtype(x.dtype, jnp.integer) and jnp.issubdtype(y.dtype, jnp.integer)
    return (integer_power if integers else lax.pow)(x, y)


@lowers("stablehlo.select")
def select(pred, on_true, on_false):
    return lax.select(pred, jnp.asarray(on_true), jnp.asarray(on_false))


@lowers("stablehlo.compare")
def compare(lhs, rhs, direction, kind, /):
    """TOTALORDER compares -NaN, -inf, ..., -0, 0, ..., inf, NaN by their bits."""
    if kind == "TOTALORDER":
        lhs, rhs = ordered(lhs), ordered(rhs)
    return COMPARE[direction](lhs, rhs)


def ordered(x):
    """Maps floats to integers in their total order; integers stay."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"int{8 * x.dtype.itemsize}"))
    return jnp.where(bits < 0, jnp.iinfo(bits.dtype).max ^ bits, bits)


@lowers("stablehlo.convert")
def convert(result, operand):
    """A float becomes a bool where it is not 0."""
    if jnp.iscomplexobj(operand) and not jnp.issubdtype(result.dtype, jnp.complexfloating):
        operand = lax.real(operand)
    return lax.convert_element_type(operand, result.dtype)


@lowers("stablehlo.bitcast_convert")
def bitcast_convert(result, operand):
    """Without x64 two 32-bit integers that would become one of 64 bits stay: a random state."""
    halves = result.wide.itemsize == 2 * result.dtype.itemsize == 2 * operand.dtype.itemsize
    if halves and operand.ndim == len(result.shape) + 1:
        return operand
    return lax.bitcast_convert_type(operand, result.dtype)


@lowers("stablehlo.reduce_precision")
def reduce_precision(operand, exponent_bits, mantissa_bits):
    return lax.reduce_precision(operand, exponent_bits, mantissa_bits)


@lowers("stablehlo.map")
def map_(result, inputs, dimensions, computation):
    """Maps a computation of scalars over every axis."""
    for _ in dimensions:
        computation = jax.vmap(computation)
    return computation(*inputs)


@lowers("stablehlo.optimization_barrier")
def optimization_barrier(operand):
    return lax.optimization_barrier(tuple(operand))
