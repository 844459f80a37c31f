"""Attention as an operator of JAX's: its derivatives, its batches, and who computes it where.

    attention      query, key, value, masks -> result, sums
    its tangent    ... and tangents -> tangent of the result, which is linear in the tangents
    its gradient   ... and the cotangent of the result -> cotangents; the transpose of the tangent

``sums``, the logarithm of the sum of exponentials of each row, is all that the gradient keeps
beside the arrays and the result; no derivative goes through it. Further derivatives are those of
the formulas. Which kernel computes the three decides the platform that a program is lowered for,
not that of this process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad, batching, mlir, xla

from anyjax.numerics.attention import blocks, cuda, divided, plain, tpu
from anyjax.numerics.attention.form import Form
from anyjax.private_names import need

NEED_DEVICES: set = need(
    "jax._src.dispatch:prim_requires_devices_during_lowering", "attention on several devices"
)
Primitive: Any = type(lax.add_p)  # jax.extend, where it has its public name, loads Pallas, too
attention_p = Primitive("attention")
tangent_p = Primitive("attention_tangent")
gradient_p = Primitive("attention_gradient")


def attention(form: Form, query, key, value, *masks):
    """Returns the result of an attention.

    Args:
      form: its static part.
      query: [batch, heads, length, width].
      key, value: [batch, heads of keys, source, width]; query heads share them in groups.
      masks: of bool, True where a row sees a column, or numbers that are added to the scores; they
        broadcast to [batch, heads, length, source].
    """
    masks = tuple(x.reshape(*(1,) * (4 - x.ndim), *x.shape) for x in masks)
    return attention_p.bind(query, key, value, *masks, form=form)[0]


def attend(*arrays, form, by=plain.attend):
    """Computes ``attention_p``."""
    with jax.default_matmul_precision(form.precision):
        out, sums = by(form, *arrays)
    return out, sums[..., None]


def tangent(*arrays, form, masks, active):
    """Computes ``tangent_p`` by its formula: the tangent of the result."""
    of, further = arrays[: 3 + masks], iter(arrays[5 + masks :])
    chosen = [i for i, on in enumerate(active) if on]
    function = _of_some(lambda *x: attend(*x, form=form)[0], of, chosen)
    return [jax.jvp(function, [of[i] for i in chosen], [*further])[1]]


def gradient(*arrays, form, masks, active, by=plain.backward):
    """Computes ``gradient_p``: the cotangents of the active ones of (query, key, value, *masks)."""
    *of, out, sums, cotangent = arrays
    query, key, value, *further = of
    with jax.default_matmul_precision(form.precision):
        *cotangents, of_scores = by(
            form, query, key, value, further, out, sums[..., 0], cotangent, active
        )
    cotangents += [_summed(of_scores, x) if on else None for x, on in zip(further, active[3:])]
    return [x.astype(a.dtype) for x, a, on in zip(cotangents, of, active) if on]


def _summed(x: jax.Array, like: jax.Array) -> jax.Array:
    """Sums over what was broadcast."""
    axes = [i for i, n in enumerate(like.shape) if n == 1 and x.shape[i] != 1]
    return x.sum(axes, keepdims=True) if axes else x


def _of_some(function: Callable, arrays: Sequence, chosen: Sequence[int]) -> Callable:
    def inner(*new):
        every = [*arrays]
        for i, x in zip(chosen, new):
            every[i] = x
        return function(*every)

    return inner


def _of_formula(*arrays, form, masks, active):
    """``gradient`` as a function of query, key, value, masks and the cotangent alone: its own
    derivatives do not know how result and sums came about.
    """
    of, cotangent = arrays[: 3 + masks], arrays[-1]
    chosen = [i for i, on in enumerate(active) if on]
    function = _of_some(lambda *x: attend(*x, form=form)[0], of, chosen)
    return [*jax.vjp(function, *[of[i] for i in chosen])[1](cotangent)]


def _attention_jvp(primals, tangents, *, form):
    out, sums = attention_p.bind(*primals, form=form)
    active = tuple(type(t) is not ad.Zero for t in tangents)
    inner = [ad.instantiate_zeros(t) for t, on in zip(tangents, active) if on]
    if not inner:
        return [out, sums], [_zero(x) for x in (out, sums)]
    of = {"form": form, "masks": len(primals) - 3, "active": active}
    (tangent,) = tangent_p.bind(*primals, out, sums, *inner, **of)
    return [out, sums], [tangent, _zero(sums)]


def _zero(x: jax.Array) -> ad.Zero:
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _tangent_transpose(cotangents, *arrays, form, masks, active):
    (cotangent,) = cotangents
    first = 5 + masks
    results: list[Any] = [None] * len(arrays)
    if type(cotangent) is not ad.Zero:
        of = {"form": form, "masks": masks, "active": active}
        gradients = gradient_p.bind(*arrays[:first], cotangent, **of)
        for i, x in enumerate(gradients, first):
            results[i] = x if ad.is_undefined_primal(arrays[i]) else None
    return results


def _formula_jvp(function: Callable, primals, tangents, **params):
    chosen = [i for i, t in enumerate(tangents) if type(t) is not ad.Zero]
    inner = _of_some(functools.partial(function, **params), primals, chosen)
    along = [ad.instantiate_zeros(tangents[i]) for i in chosen]
    return jax.jvp(inner, [primals[i] for i in chosen], along)


def _batched(primitive, arrays, dims, **params):
    """Takes what is mapped over into the batch."""
    size = next(x.shape[d] for x, d in zip(arrays, dims) if d is not None)
    batch = arrays[0].ndim - (dims[0] is not None) and _inner(arrays[0], dims[0])[0]
    count = 3 + params.get("masks", len(arrays) - 3)
    active = params.get("active", ()) if primitive is gradient_p else ()
    folded = []
    for i, (x, d) in enumerate(zip(arrays, dims)):
        shared = d is None and 3 <= i < count and not any(active[3:])
        if shared and x.shape[0] == 1:
            folded.append(x)
            continue
        x = x[None] if d is None else jnp.moveaxis(x, d, 0)
        x = jnp.broadcast_to(x, (size, batch, *x.shape[2:]))
        folded.append(x.reshape(-1, *x.shape[2:]))
    out = primitive.bind(*folded, **params)
    out = [x.reshape(size, -1, *x.shape[1:]) for x in out]
    if any(active):
        shapes = [_inner(x, d) for x, d, on in zip(arrays, dims, active) if on]
        out = [x.sum(1, keepdims=True) if s[0] < x.shape[1] else x for x, s in zip(out, shapes)]
    return out, [0] * len(out)


def _inner(x: jax.Array, dim: int | None) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(x.shape) if i != dim)


def _avals(query, key, value, *rest, form):
    length = query.shape[:-1]
    plain_type = {"weak_type": False}
    sums = jnp.promote_types(query.dtype, jnp.float32)
    return [
        query.update(shape=(*length, value.shape[-1]), dtype=value.dtype, **plain_type),
        query.update(shape=(*length, 1), dtype=sums, **plain_type),
    ]


def _define(
    primitive, formula: Callable, avals: Callable, jvp: Callable, kernels: dict[str, Callable]
) -> None:
    primitive.multiple_results = True
    NEED_DEVICES.add(primitive)  # of their kernels, which are divided over a mesh
    primitive.def_impl(functools.partial(xla.apply_primitive, primitive))
    primitive.def_abstract_eval(avals)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = functools.partial(_batched, primitive)
    mlir.register_lowering(primitive, mlir.lower_fun(formula))
    for platform, rule in kernels.items():
        mlir.register_lowering(primitive, functools.partial(rule, formula), platform=platform)


def _cudnn(
    kernel: Callable,
    rows: Callable,
    formula: Callable,
    ctx: mlir.LoweringRuleContext,
    *arrays,
    **params,
):
    """Lowers to kernels that are divided over a mesh by rules of their own; on a GPU that is too
    old for them to rows in blocks.
    """
    devices = getattr(ctx.module_context.axis_context, "device_assignment", None) or (None,)
    if not cuda.serves(devices[0]):
        kernel = rows
    return mlir.lower_fun(functools.partial(formula, by=kernel))(ctx, *arrays, **params)


def _pallas(
    kernel: Callable,
    parts: Callable,
    rows: Callable,
    formula: Callable,
    ctx: mlir.LoweringRuleContext,
    *arrays,
    **params,
):
    """Lowers to kernels that no compiler divides: in parts where the mesh is known, else rows in
    blocks, which XLA divides. No kernel serves one row.
    """
    context = ctx.module_context.axis_context
    mesh = getattr(context, "abstract_mesh", None)
    query: Any = ctx.avals_in[0]
    if getattr(context, "num_devices", 1) > 1 and query.shape[-2] > 1:
        kernel = rows if mesh is None else functools.partial(parts, mesh, kernel)
    return mlir.lower_fun(functools.partial(formula, by=kernel))(ctx, *arrays, **params)


_define(
    attention_p,
    attend,
    _avals,
    _attention_jvp,
    {
        "tpu": functools.partial(_pallas, tpu.attend, divided.attend, blocks.attend),
        "cuda": functools.partial(_cudnn, cuda.attend, blocks.attend),
    },
)
_define(
    tangent_p,
    tangent,
    lambda query, key, value, *rest, form, **_: _avals(query, key, value, form=form)[:1],
    functools.partial(_formula_jvp, tangent),
    {},
)
_define(
    gradient_p,
    gradient,
    lambda *avals, form, masks, active: [x for x, on in zip(avals, active) if on],
    functools.partial(_formula_jvp, _of_formula),
    {
        "tpu": functools.partial(_pallas, tpu.backward, divided.backward, blocks.backward),
        "cuda": functools.partial(_cudnn, cuda.backward, blocks.backward),
    },
)
ad.primitive_transposes[tangent_p] = _tangent_transpose
FORMULAS: dict[Any, Callable] = {attention_p: attend, tangent_p: tangent, gradient_p: gradient}


def formula_of(primitive, avals: tuple, params: dict):
    """Returns an operator's formula as a closed jaxpr."""
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals)
    return _formula_of(primitive, shapes, tuple(params.items()))


@functools.lru_cache(256)
def _formula_of(primitive, shapes: tuple, params: tuple):
    return jax.make_jaxpr(functools.partial(FORMULAS[primitive], **dict(params)))(*shapes)
