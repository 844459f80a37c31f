"""Reductions of seven dimensions and more on a CPU, where two releases of jaxlib end the process.

XLA:CPU of jaxlib 0.10.2 and 0.11.0 hands a product and the sum over it to YNNPACK as one kernel,
which writes outside of its memory from rank 7 on where a size is 1 (jax-ml/jax#39257, #40412; right
since 0.12). An option of ``jax.jit`` avoids it, but options are refused within any transformation,
``jax.grad`` and the caller's own ``jax.jit`` too. So the operand of such a reduction is rounded to
the precision that it has: no value changes, and XLA leaves the two apart. Programs of lower ranks,
of other platforms and of other releases are what they were.
"""

from __future__ import annotations

import functools
from importlib import metadata

import ml_dtypes
import numpy as np
from jax import lax
from jax.interpreters import mlir

from anyjax.private_names import need

RELEASES = {"0.10.2", "0.11.0"}  # of jaxlib
RANK = 7
PRECISIONS = {np.float32: (8, 23), np.float16: (5, 10), ml_dtypes.bfloat16: (8, 7)}
REDUCTIONS = [
    *(lax.reduce_sum_p, lax.reduce_max_p, lax.reduce_min_p, lax.reduce_prod_p, lax.reduce_p),
    *(lax.argmax_p, lax.argmin_p, lax.reduce_window_sum_p, lax.reduce_window_max_p),
    *(lax.reduce_window_min_p, lax.reduce_window_p),
]
REDUCE_PRECISION = mlir.lower_fun(lax.reduce_precision, multiple_results=False)


def protect(release: str | None = None) -> bool:
    """Has JAX lower reductions as this file says, where the release of jaxlib needs it.

    Args:
      release: of jaxlib; by default the one that is installed.

    Returns whether it does.
    """
    release = metadata.version("jaxlib") if release is None else release
    if release in RELEASES:
        rules = need("jax.interpreters.mlir:_lowerings", "reductions of seven dimensions")
        for primitive in REDUCTIONS:
            entry = rules[primitive]
            rule = functools.partial(_lower, entry.rule)
            mlir.register_lowering(primitive, rule, inline=entry.inline)
    return release in RELEASES


def _lower(rule: mlir.LoweringRule, ctx: mlir.LoweringRuleContext, *arrays, **params):
    """Lowers a reduction by JAX's own rule; for all platforms of a program that CPUs run, too: one
    rule for each platform would put a choice around every reduction.
    """
    if "cpu" in ctx.module_context.platforms:
        arrays = tuple(_rounded(ctx, aval, x) for aval, x in zip(ctx.avals_in, arrays))
    return rule(ctx, *arrays, **params)


def _rounded(ctx: mlir.LoweringRuleContext, aval, array: mlir.ir.Value) -> mlir.ir.Value:
    if aval.ndim < RANK or (bits := PRECISIONS.get(aval.dtype.type)) is None:
        return array
    inner = ctx.replace(primitive=lax.reduce_precision_p, avals_in=[aval], avals_out=[aval])
    exponent, mantissa = bits
    (rounded,) = REDUCE_PRECISION(inner, array, exponent_bits=exponent, mantissa_bits=mantissa)
    return rounded
