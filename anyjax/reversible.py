"""A while loop of any length with derivatives in both modes, and under vmap.

``lax.while_loop`` has no reverse derivative, because the number of states to remember is unknown.
Here the pullback counts the turns, remembers ``SLOTS`` states at even distances, and computes the
states between them again: as fast as a scan up to SLOTS turns, and for n turns n / (2 * SLOTS)
further ones each. It consists of such loops itself, so that it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad, batching

from anyjax.jaxprs import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from anyjax.numerics.primitives import primitive

SLOTS = 64


def while_loop(cond: Callable, body: Callable, init: Sequence[jax.Array]) -> list[jax.Array]:
    """Runs ``body`` of flat arrays as long as ``cond``; both may close over tracers."""
    test, step = jax.make_jaxpr(cond)(*init), jax.make_jaxpr(body)(*init)
    consts = [*test.consts, *step.consts]
    closed = [ClosedJaxpr(_open(x), ()) for x in (test, step)]
    sizes = (len(test.consts), len(step.consts))
    operands = map(jnp.asarray, [*consts, *init])
    return while_p.bind(*operands, test=closed[0], step=closed[1], sizes=sizes)


def _open(closed: ClosedJaxpr) -> Jaxpr:
    """Returns the jaxpr with its constants as its first inputs."""
    jaxpr = closed.jaxpr
    return jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])


class Loop:
    """The functions of a loop whose operands are (constants of test, of step, carry)."""

    def __init__(self, test: ClosedJaxpr, step: ClosedJaxpr, sizes: tuple[int, int]):
        self.test_, self.step_ = jaxpr_as_fun(test), jaxpr_as_fun(step)
        self.first, self.second = sizes

    def split(self, operands: Sequence[jax.Array]) -> tuple[list, list, list]:
        a, b = self.first, self.first + self.second
        return [*operands[:a]], [*operands[a:b]], [*operands[b:]]

    def test(self, operands: Sequence[jax.Array]) -> Callable[..., Any]:
        """Returns the condition as a function of the carry."""
        consts = self.split(operands)[0]
        return lambda *carry: self.test_(*consts, *carry)[0]

    def step(self, operands: Sequence[jax.Array]) -> Callable[..., list]:
        """Returns the body as a function of the carry."""
        consts = self.split(operands)[1]
        return lambda *carry: self.step_(*consts, *carry)


def _smooth(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _plain(*operands, test, step, sizes):
    loop = Loop(test, step, sizes)
    check, turn = loop.test(operands), loop.step(operands)
    carry = tuple(loop.split(operands)[2])
    return lax.while_loop(lambda c: check(*c), lambda c: tuple(turn(*c)), carry)


def _differentiable(loop: Loop, operands: Sequence[jax.Array]) -> list[int]:
    """Returns the operands with tangents: floats of the body's constants and of the carry."""
    return [i for i, x in enumerate(operands) if i >= loop.first and _smooth(x)]


def _with_tangents(loop: Loop, operands: Sequence[jax.Array], tangents: Sequence[jax.Array]):
    """Returns the body of (carry, tangents of its floats), its start and the size of the carry."""
    a, b = loop.first, loop.first + loop.second
    moving = _differentiable(loop, operands)
    fixed = {i: t for i, t in zip(moving, tangents) if i < b}
    floats = [i for i in moving if i >= b]
    start = [t for i, t in zip(moving, tangents) if i >= b]
    count = len(operands) - b

    def turn(*both):
        carry, carry_dots = both[:count], dict(zip(floats, both[count:]))
        inputs = [*operands[a:b], *carry]
        places = [i - a for i in moving]
        of_floats = lambda *xs: _floats(loop.step_(*_put(inputs, places, xs)))
        values = [inputs[i] for i in places]
        dots = [fixed[i] if i < b else carry_dots[i] for i in moving]
        _, out = jax.jvp(of_floats, values, dots)
        return [*loop.step_(*inputs), *out]

    return turn, start, count


def _put(
    values: Sequence[jax.Array], places: Sequence[int], new: Sequence[jax.Array]
) -> list[jax.Array]:
    filled = list(values)
    for i, x in zip(places, new):
        filled[i] = x
    return filled


def _floats(values: Sequence[jax.Array]) -> list[jax.Array]:
    return [x for x in values if _smooth(x)]


def _pushed(*both, test, step, sizes, count):
    """Returns the tangents of the results; ``both`` is operands, then tangents."""
    loop = Loop(test, step, sizes)
    operands, tangents = both[:count], both[count:]
    turn, start, size = _with_tangents(loop, operands, tangents)
    check = loop.test(operands)
    carry = [*loop.split(operands)[2], *start]
    return while_loop(lambda *c: check(*c[:size]), turn, carry)[size:]


def _pulled(
    loop: Loop, operands: Sequence[jax.Array], cotangents: Sequence[jax.Array]
) -> list[jax.Array]:
    """Returns the cotangents of the differentiable operands, for those of the results' floats."""
    a, b = loop.first, loop.first + loop.second
    check, turn = loop.test(operands), loop.step(operands)
    start = loop.split(operands)[2]
    size = len(start)
    step = jnp.int32(1)
    counted = while_loop(
        lambda k, *c: check(*c), lambda k, *c: [k + step, *turn(*c)], [jnp.int32(0), *start]
    )
    count = counted[0]
    stride = jnp.maximum((count + SLOTS - 1) // SLOTS, 1)

    def remember(k, *both):
        carry, slots = both[:size], both[size:]
        at = k // stride
        keep = lambda s, x: jnp.where(k % stride == 0, s.at[at].set(x), s)
        return [k + step, *turn(*carry), *map(keep, slots, carry)]

    empty = [jnp.zeros((SLOTS, *x.shape), x.dtype) for x in start]
    slots = while_loop(lambda k, *_: k < count, remember, [jnp.int32(0), *start, *empty])[
        1 + size :
    ]

    def state(i):
        first = i // stride
        saved = [lax.dynamic_index_in_dim(s, first, 0, keepdims=False) for s in slots]
        replay = lambda k, *c: [k + step, *turn(*c)]
        return while_loop(lambda k, *_: k < i, replay, [first * stride, *saved])[1:]

    moving = _differentiable(loop, operands)
    inner = [i for i in moving if i < b]
    floats = [i - b for i in moving if i >= b]

    def back(i, *cts):
        of_consts, of_carry = cts[: len(inner)], cts[len(inner) :]
        inputs = [*operands[a:b], *state(i - step)]
        places = [*(j - a for j in inner), *(j + b - a for j in floats)]
        of_floats = lambda *xs: _floats(loop.step_(*_put(inputs, places, xs)))
        new_cts = jax.vjp(of_floats, *(inputs[j] for j in places))[1](list(of_carry))
        sums = [x + y for x, y in zip(of_consts, new_cts)]
        return [i - step, *sums, *new_cts[len(inner) :]]

    zeros = [jnp.zeros_like(operands[i]) for i in inner]
    return while_loop(lambda i, *_: i > 0, back, [count, *zeros, *cotangents])[1:]


def _jvp(primals, tangents, **params):
    loop = Loop(**params)
    out = while_p.bind(*primals, **params)
    in_dots = [ad.instantiate_zeros(tangents[i]) for i in _differentiable(loop, primals)]
    dots = iter(pushed_p.bind(*primals, *in_dots, count=len(primals), **params))
    return out, [next(dots) if _smooth(x) else _no_tangent(x) for x in out]


def _no_tangent(value: jax.Array) -> ad.Zero:
    return ad.Zero(jax.typeof(value).to_tangent_aval())


def _transpose(cotangents, *both, count, **params):
    operands = both[:count]
    if all(type(ct) is ad.Zero for ct in cotangents):  # not zeros: 0 times infinity is NaN
        return [None] * len(both)
    loop = Loop(**params)
    results = [x for x in loop.split(operands)[2] if _smooth(x)]
    cts = [jnp.zeros_like(x) if type(ct) is ad.Zero else ct for ct, x in zip(cotangents, results)]
    return [*[None] * count, *_pulled(loop, operands, cts)]


def _pushed_jvp(primals, tangents, **params):
    run = lambda *both: _pushed(*both, **params)
    dots = [ad.instantiate_zeros(t) for t in tangents]
    return jax.jvp(run, primals, dots)


def _batched(values, axes, test, step, sizes):
    """Returns the operands with the batch axis first, and the loop over the whole batch."""
    loop = Loop(test, step, sizes)
    size = next(x.shape[d] for x, d in zip(values, axes) if d is not None)
    first, second, carry = loop.split(_front(values, axes, size))
    check, turn = jax.vmap(loop.test_), jax.vmap(loop.step_)

    def turns(*operands):
        consts, carried = operands[: len(first) + len(second)], operands[len(first) + len(second) :]
        on = check(*consts[: len(first)], *carried)[0]
        new = turn(*consts[len(first) :], *carried)
        pick = lambda x, y: jnp.where(on.reshape(-1, *[1] * (x.ndim - 1)), x, y)
        return list(map(pick, new, carried))

    any_of = lambda *operands: [jnp.any(check(*operands)[0])]
    # The body needs the condition's constants, too.
    operands = [*first, *first, *second, *carry]
    new_test = jax.make_jaxpr(any_of)(*first, *carry)
    new_step = jax.make_jaxpr(turns)(*first, *second, *carry)
    params = {"test": new_test, "step": new_step, "sizes": (len(first), len(first) + len(second))}
    return operands, params


def _vmap(values, axes, **params):
    operands, params = _batched(values, axes, **params)
    out = while_p.bind(*operands, **params)
    return out, [0] * len(out)


def _pushed_vmap(values, axes, count, **params):
    """Maps the tangents' loop; the body takes the condition's constants, too, without tangents."""
    size = next(x.shape[d] for x, d in zip(values, axes) if d is not None)
    operands, new = _batched(_front(values[:count], axes[:count], size), [0] * count, **params)
    dots = _front(values[count:], axes[count:], size)
    extra = [jnp.zeros_like(x) for x in operands[: params["sizes"][0]] if _smooth(x)]
    out = pushed_p.bind(*operands, *extra, *dots, count=len(operands), **new)
    return out, [0] * len(out)


def _front(values, axes, size):
    return [batching.bdim_at_front(x, d, size) for x, d in zip(values, axes)]


def _types(*operands, sizes, step, **_):
    return step.out_avals


def _pushed_types(*both, count, step, **_):
    return [x for x in step.out_avals if _smooth(x)]


while_p = primitive("reversible_while", _plain, _types, jvp=_jvp, vmap=_vmap)
pushed_p = primitive(
    "reversible_while_tangents",
    _pushed,
    _pushed_types,
    jvp=_pushed_jvp,
    vmap=_pushed_vmap,
    transpose=_transpose,
)
