"""Elementwise arithmetic, comparisons, logic, bits.

Operands that differ in dtype were promoted by the table; ``operands`` brings numbers and shapes
together.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from anyjax.numerics.division import complex_power, divide, integer_power
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import (
    absolute,
    binary_of,
    cast,
    common,
    default_int,
    dividends,
    exact,
    floating,
    floats,
    is_number,
    is_short,
    like,
    number,
    operands,
    same,
    select,
    wide,
    widened,
)
from anyjax.torch.ops.polar import binary, logaddexp


def _float(function):
    """A function of one floating point array; integers become torch's default float."""
    return lambda self: function(floating(self))


def _composed(function):
    """As ``_float``, for what rounds more than once: 16-bit floats are computed in float32."""
    return widened(_float(function))


def _ints_stay(function):
    """A function that leaves integers alone."""
    return lambda self: self if exact(self) else function(self)


def _divided(function):
    """A ``lax`` function of two operands, the second of which is no integer 0."""
    return lambda self, other: function(*dividends(self, other))


def _float_binary(function):
    """A ``lax`` function of two floating point operands."""
    return lambda self, other: function(*floats(self, other))


def truth(x):
    """Whether elements are not 0."""
    return x if x.dtype.kind == "b" else lax.ne(x, like(x, 0))


def _logical(function):
    return lambda self, other: function(*map(truth, operands(self, other)))


FLOAT = """sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp expm1 log log1p
sqrt rsqrt"""
table.update({getattr(aten, n): _float(getattr(lax, n)) for n in FLOAT.split()})
table.update({getattr(aten, n): _ints_stay(getattr(lax, n)) for n in ("floor", "ceil")})
table.update({getattr(aten, n): binary_of(getattr(lax, n)) for n in ("lt", "le", "gt", "ge")})
table.update(
    {
        aten.exp2: _composed(lax.exp2),
        aten.log2: _composed(jnp.log2),
        aten.log10: _composed(lambda x: lax.log(x) * like(x, 1 / math.log(10))),
        aten.sigmoid: _float(lax.logistic),
        aten.reciprocal: _float(lambda x: lax.div(like(x, 1), x)),
        aten.sinc: _composed(lambda x: sinc(x * like(x, math.pi))),
        aten.deg2rad: _composed(lambda x: x * like(x, math.pi / 180)),
        aten.rad2deg: _composed(lambda x: x * like(x, 180 / math.pi)),
        aten.trunc: _ints_stay(jnp.trunc),
        aten.frac: lambda self: self - jnp.trunc(self),
        aten.round.default: _ints_stay(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)),
        aten.abs: absolute,
        aten.neg: lax.neg,
        aten.positive: same,
        aten.square: lambda self: mul(powers_of(self), powers_of(self)),
        aten.signbit: lambda self: (
            jnp.zeros(self.shape, bool) if self.dtype.kind in "bu" else jnp.signbit(self)
        ),
        aten.logical_not: lambda self: lax.eq(self, like(self, 0)),
        aten.isnan: lambda self: lax.ne(self, self),
        aten.isinf: jnp.isinf,
        aten.isfinite: jnp.isfinite,
        aten.isposinf: jnp.isposinf,
        aten.isneginf: jnp.isneginf,
        aten.frexp.Tensor: jnp.frexp,
        aten.nan_to_num: lambda self, nan, posinf, neginf: jnp.nan_to_num(
            self, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf
        ),
        aten.eq.Tensor: binary_of(lax.eq),
        aten.eq.Scalar: binary_of(lax.eq),
        aten.ne.Tensor: binary_of(lax.ne),
        aten.ne.Scalar: binary_of(lax.ne),
        aten.isclose: jnp.isclose,
        aten.atan2: _float_binary(lambda x, y: atan2(x, y)),
        aten.hypot: widened(binary_of(lambda x, y: hypot(x, y))),
        aten.nextafter: lambda self, other: nextafter(
            *jnp.broadcast_arrays(*operands(self, other))
        ),
        aten.copysign: _float_binary(lambda x, y: copysign(absolute(x), y)),
        aten.ldexp.Tensor: widened(lambda self, other: floating(self) * jnp.exp2(floating(other))),
        aten.complex: binary_of(lax.complex),
        aten.logaddexp: widened(binary_of(logaddexp)),
        aten.logaddexp2: widened(binary_of(binary)),
        aten.fmod: _divided(lax.rem),
        aten.remainder: _divided(jnp.remainder),
        aten.gcd: binary_of(jnp.gcd),
        aten.lcm: binary_of(jnp.lcm),
        aten.heaviside: lambda self, values: heaviside(*operands(self, values)),
        aten.bitwise_not: lax.bitwise_not,
        aten.bitwise_and: binary_of(lax.bitwise_and),
        aten.bitwise_or: binary_of(lax.bitwise_or),
        aten.bitwise_xor: binary_of(lax.bitwise_xor),
        aten.bitwise_left_shift: binary_of(lax.shift_left),
        aten.__lshift__: binary_of(lax.shift_left),
        aten.logical_and: _logical(lax.bitwise_and),
        aten.logical_or: _logical(lax.bitwise_or),
        aten.logical_xor: _logical(lax.bitwise_xor),
    }
)


@lowers(aten.bitwise_right_shift, aten.__rshift__)
def shift_right(self, other):
    """By too many bits, or by a negative number, an unsigned integer is 0, and others are sign."""
    x, y = operands(self, other)
    shift = lax.shift_right_logical if x.dtype.kind == "u" else lax.shift_right_arithmetic
    return shift(x, y)


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf)
def where(condition, self, other):
    return select(truth(condition), self, other)


@lowers(aten.isin)
def isin(elements, test_elements, assume_unique, invert, /):
    return jnp.isin(elements, test_elements, invert=invert)


def sinc(x):
    """sin(x) / x, by its series near 0, where the quotient's gradient would cancel."""
    near = abs(x) < 0.1
    square = mul(select(near, x, like(x, 0)), x)
    series = like(x, 1)
    for n in (72, 42, 20, 6):
        series = 1 - square * series / n
    safe = select(near, like(x, 1), x)
    return select(near, series, lax.sin(safe) / safe)


@jax.custom_jvp
def atan2(y, x):
    """The gradient at (0, 0) is 0."""
    return lax.atan2(y, x)


def _share(part, y, x):
    square = y * y + x * x
    return select(square == 0, 0, part / select(square == 0, 1, square))


atan2.defjvps(
    lambda tangent, _, y, x: tangent * _share(x, y, x),
    lambda tangent, _, y, x: -tangent * _share(y, y, x),
)


@jax.custom_jvp
def hypot(x, y):
    """The gradient at (0, 0) is NaN."""
    return jnp.hypot(x, y)


hypot.defjvps(
    lambda tangent, out, x, y: tangent * (x / out), lambda tangent, out, x, y: tangent * (y / out)
)


def heaviside(x, values):
    """NaN gives 0; no gradient."""
    return lax.stop_gradient(select(x == 0, values, cast(x > 0, values.dtype)))


def copysign(size, y):
    return select(jnp.signbit(y), -size, size)


def keeps(x, y) -> bool:
    """Whether ``y`` is a scalar that the 16 bits of ``x`` would round."""
    if is_number(x) or not x.ndim or not is_short(x):
        return False
    if is_number(y):
        return isinstance(y, (int, float)) and float(like(x, y)) != y
    return y.ndim == 0 and y.dtype == np.float32


def scaled(function, x, y):
    """A product or quotient; torch's kernels keep a scalar beside 16-bit floats in float32."""
    x, y = (v if is_number(v) else wide(v) for v in (x, y))
    return function(*operands(x, y))


def _scaled(self, other, alpha):
    """``alpha * other``, where two bools stay bools."""
    if is_number(alpha) and alpha == 1:
        return other
    return mul(other, bool(alpha) if common(self, other).kind == "b" else alpha)


@lowers(aten.add)
def add(self, other, alpha):
    x, y = operands(self, _scaled(self, other, alpha))
    return lax.bitwise_or(x, y) if x.dtype.kind == "b" else lax.add(x, y)


@lowers(aten.sub)
def sub(self, other, alpha):
    unscaled = is_number(alpha) and alpha == 1
    return lax.sub(*operands(self, other if unscaled else mul(other, alpha)))


@lowers(aten.rsub)
def rsub(self, other, alpha):
    return lax.sub(*operands(other, self if alpha == 1 else mul(self, alpha)))


@lowers(aten.mul)
def mul(self, other):
    if is_number(self) and is_number(other):
        return self * other
    if keeps(self, other):
        return cast(scaled(lax.mul, self, other), self.dtype)
    if keeps(other, self):
        return cast(scaled(lax.mul, self, other), other.dtype)
    x, y = operands(self, other)
    if x is y and x.dtype.kind == "i":  # XLA takes a square for positive, and it may wrap
        y = lax.optimization_barrier(y)
    return lax.bitwise_and(x, y) if x.dtype.kind == "b" else lax.mul(x, y)


@lowers(aten.div.Tensor, aten.div.Scalar, aten.true_divide)
def div(self, other):
    if keeps(self, other):
        return cast(scaled(divide, self, other), self.dtype)
    return divide(*floats(self, other))


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(self, other, rounding_mode):
    """Rounded quotients pass no gradient; jnp's floor division gives NaN for a division by zero."""
    if rounding_mode is None:
        return div(self, other)
    if keeps(self, other):
        wider = scaled(lambda *pair: div_mode(*pair, rounding_mode), self, other)
        return cast(wider, self.dtype)
    x, y = map(lax.stop_gradient, dividends(self, other))
    if exact(x):
        return lax.div(x, y) if rounding_mode == "trunc" else jnp.floor_divide(x, y)
    quotient = divide(x, y)
    if rounding_mode == "trunc":
        return jnp.trunc(quotient)
    return select(y == 0, quotient, jnp.floor_divide(x, y))


@lowers(aten.floor_divide)
def floor_divide(self, other):
    return div_mode(self, other, "floor")


@lowers(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar)
def pow_(self, exponent):
    """Integers to negative powers are 0, but for 1 and -1; bools to a bool stay bools."""
    special = {0.5: lax.sqrt, -0.5: lax.rsqrt}
    if isinstance(exponent, complex) and not exponent.imag:
        exponent = exponent.real
    if isinstance(exponent, bool) and self.dtype.kind == "b":
        return self if exponent else lax.full_like(self, True)
    if isinstance(exponent, (int, float)) and not exact(self):
        if exponent in special:
            return special[exponent](self)
        if math.isfinite(exponent) and exponent == int(exponent) and abs(exponent) <= 64:
            return lax.integer_pow(self, int(exponent))
    x, y = operands(self, exponent)
    if not exact(x):
        return lax.pow(x, y) if is_number(exponent) and x.dtype.kind != "c" else powers(x, y)
    if isinstance(exponent, int):
        even = exponent > 0 and exponent % 2 == 0
        power = lax.integer_pow(powers_of(x), exponent // 2 if even else exponent)
        return mul(power, power) if even else power
    x = powers_of(x)
    return integer_power(x, cast(y, x.dtype))


def powers(x, y):
    """0 to the power of 0 has the gradient 0, which ``lax.pow`` has not."""
    if x.dtype.kind == "c":
        return complex_powers(x, jnp.asarray(y))
    return lax.pow(select((x == 0) & (y == 0), 1, x), y)


@jax.custom_jvp
def complex_powers(x, y):
    return complex_power(x, y)


def _complex_powers_jvp(primals, tangents):
    """By the exponent it is 0 where 0 has a real power that is not negative."""
    (x, y), (along_x, along_y) = primals, tangents
    out = complex_powers(x, y)
    tangent = lax.full_like(out, 0)
    if not isinstance(along_x, SymbolicZero):
        tangent += along_x * select(y == 0, 0, y * complex_powers(x, y - 1))
    if not isinstance(along_y, SymbolicZero):
        flat = (x == 0) & (lax.imag(y) == 0) & (lax.real(y) >= 0)
        tangent += along_y * select(flat, 0, out * lax.log(select(flat, 1, x)))
    return out, tangent


complex_powers.defjvp(_complex_powers_jvp, symbolic_zeros=True)


def powers_of(x):
    """torch's powers of bools are int64."""
    return x.astype(default_int()) if x.dtype.kind == "b" else x


@lowers(aten.pow.Scalar)
def pow_of_number(self, exponent):
    dtype = common(self, exponent)
    return pow_(lax.full_like(exponent, number(self, dtype), dtype), exponent.astype(dtype))


@jax.custom_jvp
def nextafter(x, y):
    return lax.nextafter(x, y)


nextafter.defjvps(
    lambda tangent, _, x, y: select(x == y, 0, tangent), lambda tangent, _, x, y: tangent * 0
)


@lowers(aten.lerp)
@widened
def lerp(self, end, weight):
    """From the nearer end, so that both ends are exact, infinite ones too."""
    first, second = self + weight * (end - self), end - (end - self) * (1 - weight)
    if is_number(weight):
        return first if abs(weight) < 0.5 else second
    return select(abs(weight) < 0.5, first, second)


@lowers(aten.addcmul)
@widened
def addcmul(self, tensor1, tensor2, value):
    """For integers the factor is cut to one."""
    product = tensor1 * tensor2
    if exact(self) and exact(product):
        value = int(value)
    return self + (product if is_number(value) and value == 1 else mul(product, value))


@lowers(aten.addcdiv)
@widened
def addcdiv(self, tensor1, tensor2, value):
    unscaled = is_number(value) and value == 1
    return self + (tensor1 if unscaled else mul(tensor1, value)) / tensor2


@lowers(aten.round.decimals)
@widened
def round_decimals(self, decimals):
    """Negative decimals divide first, as 10**-n would not be exact."""
    if exact(self):
        return self
    scale = like(self, 10.0 ** abs(decimals))
    even = lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    return even(self / scale) * scale if decimals < 0 else even(self * scale) / scale
