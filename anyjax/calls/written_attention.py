"""Attention that a program writes out becomes the operator: a product of queries and keys, scaled
and masked, the softmax of its rows, which nothing else reads, and a product with values. A program
is traced once; what differs from that stays as it is.

Axes are named by their places in the scores, None where an array has length 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.jaxprs import JaxprEqn, Literal, Var, constants, function_of, needed, opened, variables
from anyjax.numerics.attention import SMALLEST, Form, attend, plain

Axes: TypeAlias = tuple[Any, ...]
Atom: TypeAlias = Any  # Var | Literal, whose types JAX leaves open
Equation: TypeAlias = Any  # JaxprEqn
LOW = -9e3  # scores that are replaced by less have weights of 0; -1e4 is more in bfloat16
MOST = 2**26  # elements of an array that is worked out while a program is traced
WIDTH = -1  # the axis that a product contracts, or returns
PRECISIONS: dict[Any, str | None] = {None: None, **{(x, x): x.name.lower() for x in lax.Precision}}
CAST = "convert_element_type", "copy"


def evaluated(function: Callable[[], object], inputs: Sequence[object]) -> Any:
    """Returns what a function of traced ``inputs`` returns, with attention by the operator."""
    is_traced = lambda x: isinstance(x, jax.core.Tracer)
    shapes = [x.shape for x in jax.tree.leaves(inputs) if is_traced(x)]
    fixed = all(isinstance(n, int) for shape in shapes for n in shape)
    large = fixed and any(max(*x, math.prod(x[1:])) >= SMALLEST for x in shapes if x)
    manual = jax.sharding.get_abstract_mesh().manual_axes  # a part of a shard_map is plain
    if not large or manual or not is_traced(jnp.zeros(())):  # values are read outside of jit
        return function()
    program, shape = jax.make_jaxpr(function, return_shape=True)()
    inner: Any = opened(program)
    eqns, outvars, values = (
        inner.eqns,
        inner.outvars,
        dict(zip(inner.constvars, constants(program))),
    )
    if any(x.primitive.name == "exp" and x.outvars[0].aval.size >= SMALLEST**2 for x in eqns):
        readable = [(v, x) for v, x in values.items() if not is_traced(x)]
        attentions = dict(filter(None, map(Graph(eqns, outvars, readable).attention, eqns)))
        eqns = needed([attentions.get(id(x), x) for x in eqns], outvars)
    results = function_of(eqns, [*values], outvars)(*values.values())
    return jax.tree.unflatten(jax.tree.structure(shape), results)


class View(NamedTuple):
    """A variable with its axes; a mask is ``on`` where scores are not ``low``, or added to them."""

    variable: Atom
    axes: Axes
    on: float | None = None
    low: float | None = None


def attention(views, form: Form, filler: float | None, order: Axes, out: View, *arrays):
    """Computes an attention of (query, key, value, *masks). Rows that see nothing are ``filler``,
    None for the mean of all values; ``order`` has the axes of batch, heads, rows and columns.
    """
    *lead, row, source = order
    rows, columns = (*lead, row, WIDTH), (*lead, source, WIDTH)
    axes = rows, columns, columns, *(order for _ in views[3:])
    query, key, value, *masks = (_laid(x, v.axes, a) for x, v, a in zip(arrays, views, axes))
    masks = [_absorbing(x) if v.on is None else x == v.on for x, v in zip(masks, views[3:])]
    result = attend(form, query, key, value, *masks)
    if filler != 0 and masks:  # limits alone let each row see a column
        by_place = plain.seen(form, query.shape[2], key.shape[2])
        masks += [] if by_place is None else [by_place]
        total = sum(plain.bias_of(x, np.dtype(np.float32)) for x in masks).max(-1, keepdims=True)
        of_blind = value.mean(2, keepdims=True) if filler is None else filler
        result = jnp.where(total == -math.inf, of_blind, result)
    return _laid(result, rows, out.axes).astype(out.variable.aval.dtype)


def _laid(x: Any, axes: Axes, order: Axes) -> Any:
    """Returns an array with its axes in this order, of length 1 where it has none."""
    sizes = {a: n for n, a in zip(x.shape, axes) if a is not None}
    x = x.reshape([*sizes.values()]).transpose([[*sizes].index(a) for a in order if a in sizes])
    return x.reshape([sizes.get(a, 1) for a in order])


def _absorbing(bias: jax.Array) -> jax.Array:
    """Returns a bias for float32 that hides as many digits of scores as one in bfloat16 does."""
    wide = bias.astype(jnp.promote_types(bias.dtype, np.float32))
    low = jnp.maximum(wide * 2.0**16, jnp.finfo(np.float32).min) - wide
    hides = (wide <= LOW) & (wide > -math.inf) & (bias.dtype == jnp.bfloat16)
    return wide + lax.stop_gradient(jnp.where(hides, low, 0))


class Graph:
    """Equations by what they make and by what they read; ``values`` are those of constants."""

    def __init__(self, eqns: Sequence[JaxprEqn], outvars: Sequence[Atom], values: Any):
        is_small = lambda v: getattr(v.aval, "size", MOST + 1) <= MOST
        is_here = lambda x: getattr(x, "is_fully_addressable", True)
        self.values = {v: x for v, x in values if is_small(v) and is_here(x)}
        self.sources = {v: eqn for eqn in eqns for v in eqn.outvars}
        self.fixed = {*self.values}  # what depends on no input
        self.readers: dict[Var, list[JaxprEqn | None]] = {v: [None] for v in variables(outvars)}
        for eqn in needed(eqns, outvars):
            read = {*variables(eqn.invars)}
            for v in read:
                self.readers.setdefault(v, []).append(eqn)
            if read <= self.fixed and not eqn.effects and all(map(is_small, eqn.outvars)):
                self.fixed.update(eqn.outvars)

    def by(self, v: Atom, *names: str) -> Equation:
        """Returns the equation of a variable, None if it is of none of these operators."""
        eqn = None if isinstance(v, Literal) else self.sources.get(v)
        return eqn if eqn is not None and eqn.primitive.name in names else None

    def value(self, v: Atom) -> Any:
        """Returns the value of what depends on no input, None for others."""
        if isinstance(v, Literal):
            return np.asarray(v.val)
        if v in self.fixed and v not in self.values:
            eqn = self.sources[v]
            of = {x: self.value(x) for x in variables(eqn.invars)}
            with jax.ensure_compile_time_eval():
                out = function_of([eqn], [*of], eqn.outvars)(*of.values())
            self.values |= zip(eqn.outvars, out)
        return np.asarray(self.values[v]) if v in self.fixed else None

    def number(self, v: Atom) -> float:
        """Returns the number that all elements of an array are, NaN if there is none."""
        x = self.value(self.base(v, (None,) * v.aval.ndim).variable)
        return float(x.flat[0]) if x is not None and x.size and (x == x.flat[0]).all() else math.nan

    def base(self, v: Atom, axes: Axes, *further: str) -> View:
        """Returns what a variable is a broadcast or another layout of, through ``further``, too."""
        while True:
            axes = tuple(None if n == 1 else a for n, a in zip(v.aval.shape, axes))
            eqn = self.by(v, "broadcast_in_dim", "transpose", *further)
            if eqn is None or len(eqn.invars) > 1:
                return View(v, axes)
            v, places = eqn.invars[0], eqn.params.get("broadcast_dimensions")
            axes = _turned_back(eqn, axes) if places is None else tuple(axes[i] for i in places)

    def seen(self, v: Atom, axes: Axes, on: bool, low: float | None = None) -> list[View]:
        """Returns the conditions that together are an array of bool, or its contrary."""
        v, axes, *_ = self.base(v, axes)
        eqn = self.by(v, "not", "and" if on else "or")
        if eqn is None:
            return [View(v, axes, on, low)] if self.number(v) != on else []
        on = on != (eqn.primitive.name == "not")
        return [x for v in eqn.invars for x in self.seen(v, axes, on, low)]

    def scores(self, v: Atom, axes: Axes, scale: float = 1.0) -> Any:
        """Returns (product, its axes, scale, masks) that ``scale`` times a variable comes from."""
        eqn: Equation = None if isinstance(v, Literal) else self.sources.get(v)
        if eqn is None or not jnp.issubdtype(v.aval.dtype, np.floating):
            return None
        kind, of = eqn.primitive.name, eqn.invars
        if kind == "dot_general":
            return eqn, axes, scale, []
        if kind in (*CAST, "transpose"):
            return self.scores(of[0], _turned_back(eqn, axes), scale)
        if kind in ("mul", "div"):
            of = of[::-1] if kind == "mul" and math.isnan(self.number(of[1])) else of
            by = self.number(of[1]) if kind == "mul" else 1 / (self.number(of[1]) or math.nan)
            return self.scores(of[0], axes, scale * by) if by and math.isfinite(by) else None
        # scores, their mask, and where it leaves them; in float16 -65504 and more overflows
        choices: Any = [(of[0], of[1], None), (of[1], of[0], None)] if kind == "add" else []
        if kind == "select_n" and len(of) == 3:
            choices = [(of[2], of[1], True), (of[1], of[2], False)]
        for x, y, on in choices:
            low = self.number(y) if on is not None else LOW * (v.aval.dtype != np.float16)
            fits = scale == 1 and low <= LOW and x.aval.shape == v.aval.shape
            if fits and (scores := self.scores(x, axes)):
                views = [self.base(y, axes)] if on is None else self.seen(of[0], axes, on, low)
                return *scores[:3], scores[3] + views
        return None

    def softmax(self, div: Equation) -> Atom:
        """Returns what an equation makes the softmax of along the last axis, None for others."""
        exp: Any = self.by(div.invars[0], "exp") if div.primitive.name == "div" else None
        sub: Any = exp and self.by(exp.invars[0], "sub")
        if not sub:
            return None
        axes = tuple(range(sub.invars[0].aval.ndim))
        shift, total = (self.base(x, axes, *CAST) for x in (sub.invars[1], div.invars[1]))
        reduced = self.by(total.variable, "reduce_sum")
        if not reduced or reduced.params["axes"] != axes[-1:] or axes[-1] in shift.axes:
            return None
        summed = self.base(reduced.invars[0], axes, *CAST).variable
        same = all(a in (None, i) for i, a in enumerate(total.axes))
        return sub.invars[0] if same and summed is exp.outvars[0] else None

    def use(self, v: Atom) -> Any:
        """Returns (the product that alone reads weights, their place in it, where they stay)."""
        nonzero, axes = None, tuple(range(v.aval.ndim))
        is_nan: Any = lambda x: x and x.primitive.name == "ne" and x.invars[0] is x.invars[1]
        while True:
            readers = [x for x in self.readers.get(v, []) if not is_nan(x)]
            if len(readers) != 1 or (eqn := readers[0]) is None:
                return None
            kind, of = eqn.primitive.name, eqn.invars
            if kind == "dot_general":
                return (eqn, of.index(v), nonzero) if of[0] is not of[1] else None
            if kind == "select_n" and nonzero is None and self.number(of[3 - of.index(v)]) == 0:
                on, test = of[2] is v, self.by(of[0], "ne")
                numbers = not on and is_nan(test) and test.invars[0] is v  # stay, wherever
                nonzero = set() if numbers else {*self.seen(of[0], axes, on)}
            elif kind not in CAST or not jnp.issubdtype(v.aval.dtype, np.floating):
                return None
            v = eqn.outvars[0]

    def attention(self, div: Equation) -> tuple[int, JaxprEqn] | None:
        """Returns (identity of the last product, what takes its place) for weights that are used
        as an attention's, else None.
        """
        top = self.softmax(div)
        scores = None if top is None else self.scores(top, tuple(range(top.aval.ndim)))
        used = None if scores is None else self.use(div.outvars[0])
        if scores is None or used is None:
            return None
        (first, of_scores, scale, masks), (last, place, nonzero) = scores, used
        source = top.aval.ndim - 1
        labels = tuple(f"{i}" for i in range(last.outvars[0].aval.ndim))
        of_last = _of_operands(last, labels)
        names = dict(zip(of_last[place], range(source + 1)))
        named = lambda labels: tuple(names.get(x, WIDTH) for x in labels)
        views: Any = [*map(View, first.invars, _of_operands(first, of_scores))]
        views.sort(key=lambda view: source in view.axes)  # the query is the first
        views.append(View(last.invars[1 - place], named(of_last[1 - place])))
        batch = {*views[0].axes} & {*views[1].axes} - {WIDTH}
        rows = {*range(source)} - batch
        sets = batch | rows | {WIDTH}, batch | {source, WIDTH}, batch | {source, WIDTH}
        fits = [sorted(x.axes) for x in views] == [sorted(x) for x in sets]
        fits &= len({x.aval.dtype for x in (*first.invars, *last.invars)}) == len(rows) == 1
        precision, sharding = (first.params[x] for x in ("precision", "out_sharding"))
        fits &= precision == last.params["precision"] and sharding is None and len(batch) <= 2
        if not fits or any(isinstance(x.variable, Literal) for x in masks):
            return None
        order = (*sorted(batch), *(None,) * (2 - len(batch)), *rows, source)
        of = self.masks(masks, nonzero, order, tuple(top.aval.shape[a] for a in order[2:]))
        if of is None or precision not in PRECISIONS:
            return None
        limits, masks, filler = of
        form = Form(scale, precision=PRECISIONS[precision], **limits)
        views += masks
        read = [x.variable for x in views]
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in read]
        out = View(last.outvars[0], named(labels))
        function = functools.partial(attention, views, form, filler, order, out)
        (eqn,) = jax.make_jaxpr(jax.jit(function))(*shapes).eqns
        return id(last), eqn.replace(invars=read, outvars=last.outvars)

    def masks(self, views: list[View], nonzero: set[View] | None, order: Axes, shape: Axes) -> Any:
        """Returns (limits, masks, filler) of an attention, None if it is not the operator's."""
        of_pairs = lambda x: self.value(x.variable) if {*x.axes} <= {*order[2:], None} else None
        if len(views) == 1 and views[0].on is None and (x := of_pairs(views[0])) is not None:
            low, sees = float(x.min()), _laid(x == 0, views[0].axes, order)
            if low <= LOW and ((x == 0) | (x == low)).all() and sees.any(-1).all():  # none is blind
                views = [View(*views[0][:2], 0.0, low)]
        lows = {x.low for x in views}  # None of what is added
        several = len(lows) > 1 and lows != {None, -math.inf}  # of which blind rows are a choice
        seen = {View(*x[:3]) for x in views if x.on is not None}
        if min(shape) < SMALLEST or several or (nonzero and (None in lows or nonzero != seen)):
            return None
        arrays = [x for x in views if x.on is None or of_pairs(x) is None]
        fixed = [_laid(of_pairs(x) == x.on, x.axes, order)[0, 0] for x in views if x not in arrays]
        pairs = functools.reduce(np.logical_and, fixed, np.ones(shape, bool))
        shift = int(pairs[0].sum()) - 1
        causal = shift >= 0 and bool((pairs == np.tri(shape[0], shape[1], shift, dtype=bool)).all())
        limits = {"causal": True, "shift": shift} if causal and not pairs.all() else {}
        filler = None if lows - {None, -math.inf} else math.nan if nonzero is None else 0.0
        return limits, arrays if causal else views, 0.0 if nonzero else filler


def _turned_back(eqn: Equation, axes: Axes) -> Axes:
    return tuple(axes[i] for i in np.argsort(eqn.params.get("permutation", range(len(axes)))))


def _of_operands(product: Equation, axes: Axes) -> list[Axes]:
    (contracted, batch), axes_of = product.params["dimension_numbers"], []
    rest = iter(axes[len(batch[0]) :])
    for x, c, b in zip(product.invars, contracted, batch):
        of = dict(zip(b, axes)) | dict.fromkeys(c, WIDTH)
        axes_of.append(tuple(of[i] if i in of else next(rest) for i in range(x.aval.ndim)))
    return axes_of
