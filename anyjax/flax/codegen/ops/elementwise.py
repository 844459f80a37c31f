"""Elementwise operators."""

import ast
from typing import Any

import torch

from anyjax.flax.codegen.python.templates import Call, rows, writes

BINARY = {
    "multiply": "self * other",
    "sub": "self - other",
    "eq": "self == other",
    "ne": "self != other",
    "lt": "self < other",
    "le": "self <= other",
    "gt": "self > other",
    "ge": "self >= other",
    "__and__": "self & other",
    "__or__": "self | other",
    "__xor__": "self ^ other",
    "bitwise_and": "self & other",
    "bitwise_or": "self | other",
    "bitwise_xor": "self ^ other",
    "logical_and": "jnp.logical_and(self, other)",
    "logical_or": "jnp.logical_or(self, other)",
    "logical_xor": "jnp.logical_xor(self, other)",
    "floor_divide": "self // other",
    "remainder": "self % other",
    "fmod": "jnp.fmod(self, other)",
    "atan2": "jnp.arctan2(self, other)",
    "bitwise_right_shift": "self >> other",
    "__rshift__": "self >> other",
    "logaddexp": "jnp.logaddexp(self, other)",
}
UNARY = {
    "neg": "-self",
    "bitwise_not": "~self",
    "logical_not": "~self",
    "reciprocal": "1 / self",
    "rsqrt": "jax.lax.rsqrt(self)",
    "erf": "jax.lax.erf(self)",
    "erfc": "jax.lax.erfc(self)",
    "asin": "jnp.arcsin(self)",
    "acos": "jnp.arccos(self)",
    "atan": "jnp.arctan(self)",
    "erfinv": "jax.lax.erf_inv(self)",
    "lgamma": "jax.lax.lgamma(self)",
    "digamma": "jax.lax.digamma(self)",
    "trunc": "jnp.trunc(self)",
    "relu": "nnx.relu(self)",
    "relu6": "nnx.relu6(self)",
    "silu": "nnx.silu(self)",
    "sigmoid": "nnx.sigmoid(self)",
    "tanh": "jnp.tanh(self)",
    "hardswish": "nnx.hard_swish(self)",
    "hardsigmoid": "nnx.hard_sigmoid(self)",
    "log_sigmoid": "nnx.log_sigmoid(self)",
    "selu": "nnx.selu(self)",
    "softsign": "nnx.soft_sign(self)",
    "detach": "jax.lax.stop_gradient(self)",
    "mish": "self * jnp.tanh(nnx.softplus(self))",
    "isnan": "jnp.isnan(self)",
    "isinf": "jnp.isinf(self)",
    "isfinite": "jnp.isfinite(self)",
    "imag": "self.imag",
    "real": "self.real",
    "conj": "self.conj()",
}
SAME = (
    *("abs", "cos", "sin", "tan", "cosh", "sinh", "exp", "exp2", "expm1", "log", "log2", "log10"),
    *("log1p", "sqrt", "square", "floor", "ceil", "round", "sign"),
)
rows(BINARY | UNARY | {name: f"jnp.{name}(self)" for name in SAME}, elementwise=True)
rows(
    {
        "clone": "self",
        "hardtanh": "jnp.clip(self, min_val, max_val)",
        "leaky_relu": "nnx.leaky_relu(self, negative_slope)",
        "elu": "nnx.elu(self, alpha)",
        "where": "jnp.where(condition, self, other)",
        "masked_fill": "jnp.where(mask, value, self)",
        "lerp": "self + weight * (end - self)",
    },
    elementwise=True,
)
rows(
    {
        "contiguous": "self",
        "alias": "self",
        "lift_fresh_copy": "self",
        "lift_fresh": "self",
        "detach_": "self",
        "positive": "self",
        "celu": "nnx.celu(self, alpha)",
        "glu": "nnx.glu(self, dim)",
        "addcmul": "self + value * tensor1 * tensor2",
        "addcdiv": "self + value * tensor1 / tensor2",
        "nan_to_num": "jnp.nan_to_num(self, nan=nan, posinf=posinf, neginf=neginf)",
        "polar": "abs * jnp.exp(1j * angle)",
        "complex": "jax.lax.complex(real, imag)",
    }
)


@writes("bitwise_left_shift", "__lshift__", elementwise=True)
def left_shift(call: Call):
    """Refuses shifts of 64-bit integers beyond JAX's 32 bits."""
    if call.out.dtype == torch.int64 and isinstance(call.other, int) and call.other > 30:
        raise NotImplementedError(f"a shift of 64-bit integers by {call.other}: JAX's have 32")
    return call.write("self << other")


@writes("add", elementwise=True)
def add(call: Call):
    if call.args.get("alpha", 1) != 1:
        return call.write("self + alpha * other")
    return call.self if call.other == 0 and same_dtype(call) else call.write("self + other")


@writes("mul", elementwise=True)
def mul(call: Call):
    return call.self if call.other == 1 and same_dtype(call) else call.write("self * other")


@writes("rsub", elementwise=True)
def rsub(call: Call):
    return call.write("other - self" if call.alpha == 1 else "other - alpha * self")


@writes("div", "true_divide", elementwise=True)
def div(call: Call):
    mode = call.args.get("rounding_mode")
    if mode == "trunc" and not call.out.dtype.is_floating_point:
        return call.write("jax.lax.div(self, other)")
    templates = {None: "self / other", "floor": "self // other", "trunc": "jnp.trunc(self / other)"}
    return call.write(templates[mode])


@writes("pow", elementwise=True)
def power(call: Call):
    return call.write("jnp.sqrt(self)" if call.exponent == 0.5 else "self**exponent")


@writes("clamp", "clip", "clamp_min", "clamp_max", elementwise=True)
def clamp(call: Call):
    low, high = call.args.get("min"), call.args.get("max")
    if high is None:
        return bounded_norm(call) or call.write("jnp.maximum(self, min)")
    return call.write("jnp.minimum(self, max)" if low is None else "jnp.clip(self, min, max)")


def bounded_norm(call: Call) -> ast.expr | None:
    """Returns the norm that is kept from zero, whose gradient of zeros is 0 as torch's and not NaN;
    None where it is no norm.
    """
    match call.args["self"]:
        case ast.Call(func, [array], options) if ast.unparse(func) == "jnp.linalg.norm":
            norm: Any = call.write("optax.safe_norm(array, min)", array=array)
            norm.keywords = options
            return norm
    return None


@writes("logit", "special_logit", elementwise=True)
def logit(call: Call):
    """Writes logit, with its input kept away from 0 and 1 by ``eps``."""
    if call.args.get("eps") is None:
        return call.write("jax.scipy.special.logit(self)")
    return call.write("jax.scipy.special.logit(jnp.clip(self, eps, 1 - eps))")


@writes("gelu", elementwise=True)
def gelu(call: Call):
    return call.write("nnx.gelu(self, approximate=tanh)", tanh=call.approximate == "tanh")


@writes("softplus", elementwise=True)
def softplus(call: Call):
    if call.beta == 1:
        return call.write("nnx.softplus(self)")
    return call.write("nnx.softplus(beta * self) / beta")


def same_dtype(call: Call, name="self") -> bool:
    return call.fake(name).dtype == call.out.dtype


@writes(
    "to",
    "_to_copy",
    "type_as",
    "float",
    "_autocast_to_full_precision",
    "_autocast_to_reduced_precision",
    elementwise=True,
)
def cast(call: Call):
    """Writes a cast; 64 bits are JAX's 32, so that widening to them is nothing."""
    narrow = {torch.int64: torch.int32, torch.float64: torch.float32}
    call.args.get("other")  # the result has its kind
    source, target = (narrow.get(x, x) for x in (call.fake("self").dtype, call.out.dtype))
    return call.self if source == target else call.write("self.astype(dtype)", dtype=target)
