"""Operators element by element: arithmetic, comparison, logic, bits, conversion."""

from __future__ import annotations

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.dtypes import canonical, is_float
from anyjax.errors import Unsupported
from anyjax.numerics.division import integer_power
from anyjax.onnx.core.schema import lowers, update

update(
    {
        "Abs": jnp.abs,
        "Acos": jnp.arccos,
        "Acosh": jnp.arccosh,
        "Add": jnp.add,
        "And": jnp.logical_and,
        "Asin": jnp.arcsin,
        "Asinh": jnp.arcsinh,
        "Atan": jnp.arctan,
        "Atanh": jnp.arctanh,
        "BitwiseAnd": jnp.bitwise_and,
        "BitwiseNot": jnp.bitwise_not,
        "BitwiseOr": jnp.bitwise_or,
        "BitwiseXor": jnp.bitwise_xor,
        "Ceil": jnp.ceil,
        "Cos": jnp.cos,
        "Cosh": jnp.cosh,
        "Equal": jnp.equal,
        "Erf": lax.erf,
        "Exp": jnp.exp,
        "Floor": jnp.floor,
        "Greater": jnp.greater,
        "GreaterOrEqual": jnp.greater_equal,
        "Identity": lambda input, /: input,
        "IsNaN": jnp.isnan,
        "Less": jnp.less,
        "LessOrEqual": jnp.less_equal,
        "Log": jnp.log,
        "Mul": jnp.multiply,
        "Neg": jnp.negative,
        "Not": jnp.logical_not,
        "Or": jnp.logical_or,
        "Reciprocal": jnp.reciprocal,
        "Round": jnp.round,
        "Sign": jnp.sign,
        "Sin": jnp.sin,
        "Sinh": jnp.sinh,
        "Sqrt": jnp.sqrt,
        "Sub": jnp.subtract,
        "Tan": jnp.tan,
        "Tanh": jnp.tanh,
        "Where": lambda condition, X, Y: lax.select(*jnp.broadcast_arrays(condition, X, Y)),
        "Xor": jnp.logical_xor,
        # Of several operands.
        "Max": lambda data_0: functools.reduce(jnp.maximum, data_0),
        "Min": lambda data_0: functools.reduce(jnp.minimum, data_0),
        "Sum": lambda data_0: functools.reduce(operator.add, data_0),
        "Mean": lambda data_0: functools.reduce(operator.add, data_0) / len(data_0),
    }
)


@lowers("Div")
def div(A, B):
    """Truncates quotients of integers."""
    return jnp.divide(A, B) if is_float(A.dtype) else lax.div(*jnp.broadcast_arrays(A, B))


@lowers("Mod")
def mod(A, B, fmod):
    """The sign is the divisor's, or with ``fmod`` the dividend's."""
    return jnp.fmod(A, B) if fmod else jnp.mod(A, B)


@lowers("Pow")
def pow(X, Y):
    """The result has the dtype of the base; integers to negative powers are cut."""
    if is_float(X.dtype) == is_float(Y.dtype) and Y.dtype.kind != "i":
        Y = Y.astype(X.dtype)
    if is_float(X.dtype) or is_float(Y.dtype):
        return jnp.power(X, Y).astype(X.dtype)
    return integer_power(X, Y).astype(X.dtype)


@lowers("BitShift")
def bit_shift(X, Y, direction):
    return jnp.left_shift(X, Y) if direction == "LEFT" else jnp.right_shift(X, Y)


@lowers("Clip")
def clip(input, min, max):
    """Takes the upper bound where the bounds cross."""
    for bound, choose in ((min, jnp.maximum), (max, jnp.minimum)):
        input = input if bound is None else choose(input, bound.astype(input.dtype))
    return input


@lowers("IsInf")
def is_inf(X, detect_negative, detect_positive):
    positive = jnp.isposinf(X) if detect_positive else False
    return positive | (jnp.isneginf(X) if detect_negative else jnp.zeros(X.shape, bool))


# Conversion.


def converted(x: jax.Array, dtype: np.dtype, saturate: bool) -> jax.Array:
    """Converts as a cast of ONNX does: to bool by ``x != 0``, floats to integers towards zero, and
    to floats of 8 bits without infinities to their largest number if they ``saturate``.
    """
    target = canonical(dtype)
    if target.kind == "b":
        return x != 0
    if target.kind in "iu" and target.name != "int32" and is_float(x.dtype):
        if target.itemsize < 4:
            x = x.astype(jnp.int32)  # of which the lowest bits stay
        elif target.kind == "u":
            return jnp.where(x < 0, x.astype("int32").astype(target), x.astype(target))
    if target.name.endswith("fnuz"):  # where the bits of -0 are those of NaN
        half = float(jnp.finfo(target).smallest_subnormal) / 2
        x = jnp.where(jnp.abs(x) <= half, 0, x)
    if saturate and target.itemsize == 1 and is_float(target) and is_float(x.dtype):
        info = jnp.finfo(target)
        bounded = jnp.clip(x, float(info.min), float(info.max))
        return jnp.where(jnp.isnan(x), x, bounded).astype(target)
    return x.astype(target)


@lowers("Cast")
def cast(input, round_mode, saturate, to):
    if np.dtype(to).name == "float8_e8m0fnu":
        return _exponent(input.astype(jnp.float32), to, round_mode, saturate)
    return converted(input, to, bool(saturate))


@lowers("CastLike")
def cast_like(input, target_type, round_mode, saturate):
    return cast(input, round_mode, saturate, target_type.dtype)


def _exponent(x, dtype, round_mode, saturate):
    """Rounds to a power of two, of which the result is the biased exponent."""
    bits = lax.bitcast_convert_type(x, jnp.int32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    half = jnp.where(exponent == 0, 0x400000, 0)  # a subnormal number is below 2 ** -126
    ups = {"up": fraction > half, "down": fraction < 0, "nearest": fraction >= 0x400000}
    rounded = exponent + ups[round_mode].astype(jnp.int32)
    rounded = jnp.clip(rounded, 0, 254) if saturate else rounded
    rounded = jnp.where(exponent == 0xFF, 0xFF, rounded)
    return lax.bitcast_convert_type(rounded.astype(jnp.uint8), dtype)


@lowers("BitCast")
def bit_cast(input, to):
    target = canonical(to)
    if np.dtype(to).itemsize != target.itemsize:
        raise Unsupported(
            f"BitCast to {np.dtype(to).name}",
            why="JAX keeps 32-bit numbers unless x64 is on",
            do='call jax.config.update("jax_enable_x64", True) first',
        )
    if input.dtype == bool:
        input = input.astype(jnp.uint8)
    if target.kind == "b":
        return lax.bitcast_convert_type(input, jnp.uint8) != 0
    return lax.bitcast_convert_type(input, target)
