"""Values with a derivative of their own, which is a program: what ``torch.autograd.Function`` says.

``jax.custom_vjp`` knows no forward mode, and asks for the gradient when the trace that knows all
that the code refers to is over. So the values are computed, the rules are traced beside them, and
an operator that changes nothing stands between the values and their users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax.interpreters import ad, batching

from anyjax.errors import Unsupported
from anyjax.numerics.primitives import primitive

T = TypeVar("T")
Avals = Sequence[jax.ShapeDtypeStruct]


class Rule(NamedTuple):
    """A program of what stands at ``places`` of the operands, and of cotangents or tangents."""

    program: Any
    places: tuple[int, ...]
    constants: tuple[jax.Array, ...] = ()

    def __call__(self, operands: Sequence[jax.Array], moving: Sequence[jax.Array]) -> list[Any]:
        read = [*self.constants, *(operands[i] for i in self.places)]
        return jax.core.eval_jaxpr(self.program, read, *moving)


class Rules(NamedTuple):
    """The derivative of values by ``counts[0]`` inputs; ``counts[1]`` values stand after them.

    Attributes:
      back: the gradients of the inputs, by which of the values have a cotangent; where there is no
        such entry, those without have zeros.
      push: the tangents of the values, None where they follow from ``back``.
      name: whose it is.

    Either may be an error, which counts once somebody asks.
    """

    counts: tuple[int, int]
    back: dict[tuple[bool, ...], Rule] | Exception
    push: Rule | Exception | None
    name: str

    def pulled(self, operands: Sequence[jax.Array], cotangents: Sequence) -> list[Any]:
        """Returns the gradients of the inputs; a cotangent that is a ``Zero`` is none."""
        if isinstance(self.back, Exception):
            raise self.back
        pattern = tuple(type(x) is not ad.Zero for x in cotangents)
        if pattern in self.back:
            return self.back[pattern](operands, [x for x, on in zip(cotangents, pattern) if on])
        full = [*map(ad.instantiate_zeros, cotangents)]
        return self.back[(True,) * len(full)](operands, full)

    def pushed(self, operands: Sequence[jax.Array], tangents: Sequence[jax.Array]) -> list[Any]:
        if isinstance(self.push, Exception):
            raise self.push
        if self.push is not None:
            return self.push(operands, tangents)
        first, count = self.counts
        try:
            pull = lambda *cotangents: self.pulled(operands, cotangents)
            return [*jax.linear_transpose(pull, *operands[first : first + count])([*tangents])]
        except (TypeError, NotImplementedError, AssertionError) as error:
            raise Unsupported(
                f"forward-mode differentiation of {self.name}",
                why="it has no jvp, and its backward is not linear in the gradient",
                do=f"give {self.name} a jvp, or use jax.grad or jax.vjp",
            ) from error

    def mapped(self, operands: Sequence[jax.Array], axes: Sequence[int | None]) -> Rules:
        """Returns the rules of a batch: along the first axis, or none, of each operand."""

        def over(rule: T, moving: Sequence[jax.Array]) -> T | Rule:
            if not isinstance(rule, Rule):
                return rule
            count = len(operands)
            run = jax.vmap(lambda *xs: rule(xs[:count], xs[count:]), (*axes, *[0] * len(moving)))
            closed = jax.make_jaxpr(run)(*operands, *moving)
            invars = closed.jaxpr.invars
            constvars = [*closed.jaxpr.constvars, *invars[:count]]
            program = closed.jaxpr.replace(constvars=constvars, invars=invars[count:])
            return Rule(program, tuple(range(count)), tuple(closed.consts))

        first, count = self.counts
        inputs, values = operands[:first], operands[first : first + count]
        chosen = lambda pattern: [x for x, on in zip(values, pattern) if on]
        back = self.back
        if isinstance(back, dict):
            back = {pattern: over(rule, chosen(pattern)) for pattern, rule in back.items()}
        return Rules(self.counts, back, over(self.push, inputs), self.name)

    def __hash__(self) -> int:
        return hash((self.counts, self.name))


def traced(function: Callable, avals: Avals, operands: list[jax.Array]) -> Rule:
    """Returns a function of cotangents or tangents as a rule; what else it reads that JAX traces
    is added to the operands.
    """
    closed = jax.make_jaxpr(function)(*avals)
    places = []
    for const in closed.consts:
        if not any(const is x for x in operands):
            operands.append(const)
        places.append(next(i for i, x in enumerate(operands) if x is const))
    return Rule(closed.jaxpr, tuple(places))


def given(operands: Sequence[jax.Array], rules: Rules) -> list[jax.Array]:
    """Returns the values among the operands (inputs, values, what the rules read besides), with the
    derivative by the inputs that the rules tell.
    """
    return given_p.bind(*operands, rules=rules)


def _values(*operands: Any, rules: Rules) -> list[Any]:
    first, count = rules.counts
    return [*operands[first : first + count]]


def _given_jvp(primals, tangents, rules: Rules):
    first, count = rules.counts
    values = given_p.bind(*primals, rules=rules)
    if all(type(t) is ad.Zero for t in tangents[:first]):
        return values, [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in values]
    operands = [*primals[:first], *values, *primals[first + count :]]
    moving = [ad.instantiate_zeros(t) for t in tangents[:first]]
    return values, pushed_p.bind(*operands, *moving, rules=rules)


def _pushed(*both: Any, rules: Rules) -> list[Any]:
    end = len(both) - rules.counts[0]
    return rules.pushed(both[:end], both[end:])


def _pushed_jvp(primals, tangents, rules: Rules):
    along = [ad.instantiate_zeros(t) for t in tangents]
    return jax.jvp(lambda *both: _pushed(*both, rules=rules), [*primals], along)


def _pushed_types(*both: Any, rules: Rules) -> list[Any]:
    return [x.to_tangent_aval() for x in _values(*both, rules=rules)]


def _transposed(cotangents, *both: Any, rules: Rules) -> list[Any]:
    end = len(both) - rules.counts[0]
    if all(type(x) is ad.Zero for x in cotangents):
        return [None] * len(both)
    return [*[None] * end, *rules.pulled(both[:end], cotangents)]


def _front(operands, axes, count: int) -> tuple[list[Any], list[int | None]]:
    """Returns operands with the batch in front: the first ``count`` all have one."""
    size = next(x.shape[d] for x, d in zip(operands, axes) if d is not None)
    front = lambda x, d, i: x if d is None and i >= count else batching.bdim_at_front(x, d, size)
    moved = [front(x, d, i) for i, (x, d) in enumerate(zip(operands, axes))]
    return moved, [None if d is None and i >= count else 0 for i, d in enumerate(axes)]


def _given_vmap(operands, axes, rules: Rules):
    operands, axes = _front(operands, axes, sum(rules.counts))
    out = given_p.bind(*operands, rules=rules.mapped(operands, axes))
    return out, [0] * len(out)


def _pushed_vmap(both, axes, rules: Rules):
    first = rules.counts[0]
    end = len(both) - first
    order = [*range(end, len(both)), *range(end)]  # tangents have a batch, too
    values, axes = ([x[i] for i in order] for x in (both, axes))
    moved, places = _front(values, axes, first + sum(rules.counts))
    operands = moved[first:]
    new = rules.mapped(operands, places[first:])
    out = pushed_p.bind(*operands, *moved[:first], rules=new)
    return out, [0] * len(out)


given_p = primitive("derivative_given", _values, _values, jvp=_given_jvp, vmap=_given_vmap)
pushed_p = primitive(
    "derivative_pushed",
    _pushed,
    _pushed_types,
    jvp=_pushed_jvp,
    vmap=_pushed_vmap,
    transpose=_transposed,
)
