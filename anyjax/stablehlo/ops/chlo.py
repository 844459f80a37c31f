"""The functions of the CHLO dialect, as operations or as composites with a decomposition."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from anyjax.private_names import optional
from anyjax.stablehlo.core.schema import lowers, table
from anyjax.stablehlo.ops.elementwise import compare, logical

table.update(
    {
        "chlo.acos": lax.acos,
        "chlo.acosh": lax.acosh,
        "chlo.asin": lax.asin,
        "chlo.asinh": lax.asinh,
        "chlo.atan": lax.atan,
        "chlo.atanh": lax.atanh,
        "chlo.bessel_i1e": lax.bessel_i1e,
        "chlo.conj": lax.conj,
        "chlo.cosh": lax.cosh,
        "chlo.digamma": lax.digamma,
        "chlo.erf": lax.erf,
        "chlo.erf_inv": lax.erf_inv,
        "chlo.erfc": lax.erfc,
        "chlo.is_inf": jnp.isinf,
        "chlo.is_neg_inf": jnp.isneginf,
        "chlo.is_pos_inf": jnp.isposinf,
        "chlo.lgamma": lax.lgamma,
        "chlo.mulhi": optional("jax.lax:mulhi", "chlo.mulhi, which JAX has since 0.10.2"),
        "chlo.next_after": lax.nextafter,
        "chlo.polygamma": lax.polygamma,
        "chlo.sinh": lax.sinh,
        "chlo.square": lax.square,
        "chlo.tan": lax.tan,
        # JAX's is stable; since JAX 0.12 that is a choice
        "chlo.top_k": lambda operand, k, is_stable=None, /: lax.top_k(operand, k),
        "chlo.zeta": lax.zeta,
    }
)

BROADCAST = {
    "add": logical(lax.add, lax.bitwise_or),
    "and": lax.bitwise_and,
    "atan2": lax.atan2,
    "complex": lax.complex,
    "divide": lax.div,
    "maximum": logical(lax.max, lax.bitwise_or),
    "minimum": logical(lax.min, lax.bitwise_and),
    "multiply": logical(lax.mul, lax.bitwise_and),
    "next_after": lax.nextafter,
    "or": lax.bitwise_or,
    "polygamma": lax.polygamma,
    "power": lax.pow,
    "remainder": lax.rem,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "subtract": lax.sub,
    "xor": lax.bitwise_xor,
    "zeta": lax.zeta,
}


def broadcast(lhs, rhs, dimensions):
    """Broadcasts both to one shape; ``dimensions`` has the places of the smaller one's axes."""
    rank = max(lhs.ndim, rhs.ndim)

    def raised(x):
        if dimensions is None or x.ndim == rank:
            return x
        return lax.expand_dims(x, [i for i in range(rank) if i not in dimensions])

    return jnp.broadcast_arrays(raised(lhs), raised(rhs))


def broadcasting(operation):
    return lambda lhs, rhs, dimensions, /: operation(*broadcast(lhs, rhs, dimensions))


table.update({f"chlo.broadcast_{name}": broadcasting(f) for name, f in BROADCAST.items()})


@lowers("chlo.broadcast_compare")
def broadcast_compare(lhs, rhs, direction, dimensions, kind, /):
    return compare(*broadcast(lhs, rhs, dimensions), direction, kind)


@lowers("chlo.broadcast_select")
def broadcast_select(pred, on_true, on_false):
    return lax.select(*jnp.broadcast_arrays(pred, on_true, on_false))


@lowers("chlo.constant")
def constant(value):
    return value


@lowers("chlo.constant_like")
def constant_like(value, operand):
    return jnp.full_like(operand, value)


@lowers("chlo.scan")
def scan(outputs, inputs, inits, dimension, *rest):
    """Scans a body from (a slice of each input, carries) to (a slice of each output, carries).

    The size along the dimension is an attribute since JAX 0.10.2.
    """
    size, reverse, _, body = (None, *rest)[-4:]
    rows = [jnp.moveaxis(x, dimension, 0) for x in inputs]
    count = len(body.region.outputs) - len(inits)

    def step(carry, row):
        out = [jnp.asarray(x) for x in body(*row, *carry)]
        return out[count:], out[:count]

    last, stacked = lax.scan(step, list(inits), rows, size, reverse=bool(reverse))
    return [*(jnp.moveaxis(x, 0, dimension) for x in stacked), *last]
