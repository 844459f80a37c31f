"""Detours around what XLA:CPU of jaxlib 0.10.2 does wrong or slowly.

What stands in its way is a primitive that hands its argument on, and on CPUs alone is lowered to
something: so the platform that a program is lowered for decides, not that of this process. A
conditional of ``lax.platform_dependent`` around the operator would decide there, too, but linear
layers took 1.7 times as long to trace, and what looks for products (``jax.checkpoint``'s policies)
does not look into it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import numpy as np
from jax import lax
from jax.interpreters import ad, batching, mlir, xla

from anyjax.numerics.primitives import Primitive


def passing(name: str, on_cpu: Callable) -> Callable:
    """A function that returns its argument; CPUs compute ``on_cpu`` of it, which is the same."""
    primitive = Primitive(name)
    primitive.def_impl(functools.partial(xla.apply_primitive, primitive))
    primitive.def_abstract_eval(lambda x: x)
    ad.deflinear2(primitive, lambda cotangent, _: [primitive.bind(cotangent)])
    batching.defvectorized(primitive)
    mlir.register_lowering(primitive, lambda _, x: [x])
    mlir.register_lowering(primitive, mlir.lower_fun(on_cpu, False), platform="cpu")
    return primitive.bind


PRECISIONS = {np.dtype("f4"): (8, 23), np.dtype("f8"): (11, 52)}
rounded = passing("rounded_on_cpu", lambda x: lax.reduce_precision(x, *PRECISIONS[x.dtype]))


def apart(out):
    """A result that no other kernel takes in: a sum or an extreme that is broadcast into a product
    of batches comes out as NaN. Rounding to the precision that it has already stands between the
    two, also in the gradient.
    """
    return rounded(out) if out.ndim and out.dtype in PRECISIONS else out


kept = passing("kept_on_cpu", lax.optimization_barrier)


def turned(input, weight):
    """``input @ weight.T`` as the transpose of ``weight @ input.T``, which XLA would turn back.

    XLA:CPU's library packs the second operand for every product, and torch keeps a weight as
    (out, in): the few rows are the smaller one to pack. Eight took 0.47 of the time, 128 took 0.87,
    and from 200 on there was no difference (benchmarks/README.md).
    """
    out = lax.dot_general(weight, input, (((1,), (input.ndim - 1,)), ((), ())))
    return lax.transpose(kept(out), (*range(1, out.ndim), 0))


def few(input, weight) -> bool:
    """Whether ``turned`` is the faster product: for some rows, but not many.

    The order of the operands has to stand in the program, so here the process's platform decides;
    on another one it only costs time.
    """
    rows = math.prod(input.shape[:-1])
    fits = isinstance(rows, int) and weight.ndim == 2 and weight.dtype == np.float32
    return fits and 2 <= rows <= 128 and jax.default_backend() == "cpu"


def on_one_cpu() -> bool:
    """Whether rows of several dimensions are better one: for the gradient of a weight, which sums
    over them, XLA:CPU would turn both operands first (a step of training took 1.23 of its time).
    Several devices may share such dimensions, and a sum over one of them is theirs.
    """
    return jax.default_backend() == "cpu" and jax.device_count() == 1
