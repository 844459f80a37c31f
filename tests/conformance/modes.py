"""What is compared with torch: values, gradients, forward mode, vmap. One function for each."""

from __future__ import annotations

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.autograd import forward_ad
from torch.testing._internal import common_methods_invocations

import anyjax
from anyjax.errors import DataDependent
from anyjax.torch import interop as interop_of_users
from anyjax.torch.core import interop
from anyjax.torch.dynamo import dynamic
from anyjax.torch.dynamo.backend import compile_graph, settings_of
from tests.conformance.compare import arrays_in, compare, shapes, tensors_in
from tests.conformance.entries import EXACT, Case, TorchFails, attempt, undefined

KEY = 0
SCALES = (1.0, 0.9375, 0.875)  # a batch keeps what samples promise: signs, order, definiteness


class Eager(Exception):
    """Right, but only outside jit: the values decide shapes."""


class OfCount(DataDependent):
    """A program's result is all elements that there can be, which the mode ``chosen`` looks at."""


def of_jax(case: Case):
    """The sample as a function of arrays that gives a list of arrays."""
    model = anyjax.from_torch(case.function)

    def function(*xs):
        with mock.patch.object(common_methods_invocations, "wrapper_set_seed", unseeded):
            out = model.apply({}, *xs, rng=jax.random.key(KEY))
        if any(map(is_counted, jax.tree.leaves(out, is_leaf=is_counted))):
            raise OfCount(
                "a result", where="modes.py:1", why="see chosen", do="run it outside of jit"
            )
        return arrays_in(out)

    return function


def is_counted(x) -> bool:
    return isinstance(x, anyjax.CountedArray)


def unseeded(op, *args, **kwargs):
    """Calls the operator without the database's seed, which would ask for torch's own numbers."""
    return op(*args, **kwargs)


def arrays_of(case: Case) -> list[jax.Array]:
    return [interop.to_jax(t) for t in case.tensors]


def call(function, jit: bool, *args):
    """(result, whether it had to run outside jit)"""
    if not jit:
        return function(*args), False
    try:
        return jax.jit(function)(*args), False
    except DataDependent as error:
        if "at " not in error.where and ":" not in error.where:
            raise AssertionError("the DataDependent error names no line") from error
        return function(*args), True


def settle(wrong: str | None, eager: bool) -> str | None:
    if eager and not wrong:
        raise Eager
    return wrong


def values(case: Case, jit: bool) -> str | None:
    """Compares the outputs."""
    with torch.no_grad():
        want = attempt(case.function, *case.fresh())
        drawn = undefined(case)
    got, eager = call(of_jax(case), jit, *arrays_of(case))
    if isinstance(want, (bool, int, float, complex)) and arrays_in(got):
        want = torch.tensor(want, dtype=case.tensors[0].dtype)  # item gives an array in JAX
    if drawn:
        wrong = None if shapes(want) == shapes(got) else f"{shapes(got)}, torch {shapes(want)}"
        return settle(wrong, eager)
    with torch.no_grad():
        exact = lambda: [case.wide(*f(case.fresh())) for f in EXACT]
        return settle(compare(tensors_in(want), got, case.size, exact), eager)


def weights_for(out, like=None) -> list[torch.Tensor | None]:
    """A drawn weight for each output that has a gradient, in its dtype."""
    draw = torch.Generator().manual_seed(1)
    given = tensors_in(out)
    drawn = [torch.randn(x.shape, generator=draw, dtype=torch.float64) for x in given]
    return [w.to(x.dtype) if x.requires_grad else None for w, x in zip(drawn, given)]


def _pullback(function, tensors, wanted, weight=None):
    """(torch's gradient of the weighted sum of the outputs, the weights)"""
    outs = tensors_in(function(*[t.clone() if t.requires_grad else t for t in tensors]))
    weight = weights_for(outs) if weight is None else weight
    used = [i for i, w in enumerate(weight) if w is not None]
    if not used:
        return None, weight
    total = sum((outs[i] * weight[i].to(outs[i].dtype)).sum().real for i in used)
    given = [tensors[i] for i in wanted]
    return torch.autograd.grad(total, given, allow_unused=True, materialize_grads=True), weight


def gradients(case: Case, jit: bool) -> str | None:
    """Compares the gradient of a randomly weighted sum of the outputs."""
    wanted = case.wanted
    if not wanted or undefined(case):  # no two draws have the same gradient
        return None
    want, weight = attempt(_pullback, case.function, case.fresh(True), wanted)
    if want is None:
        return None
    arrays, function = arrays_of(case), of_jax(case)
    weighing = [None if w is None else interop.to_jax(w) for w in weight]

    def scalar(chosen):
        full = dict(enumerate(arrays)) | dict(zip(wanted, chosen))
        outs = function(*full.values())
        return sum((o * w).sum().real for o, w in zip(outs, weighing) if w is not None)

    got, eager = call(jax.grad(scalar), jit, [arrays[i] for i in wanted])
    got = list(map(jnp.conj, got))  # JAX's convention is the conjugate of torch's
    grad64 = lambda f: _pullback(
        case.wide,
        [x.requires_grad_(i in wanted) for i, x in enumerate(f(case.fresh()))],
        wanted,
        weight,
    )[0]
    return settle(compare(want, got, case.size, lambda: map(grad64, EXACT)), eager)


def _tangents(case: Case) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(2)
    drawn = [torch.randn(t.shape, generator=draw, dtype=torch.float64) for t in case.tensors]
    return [d.to(t.dtype) for d, t in zip(drawn, case.tensors)]


def _forward(function, tensors, tangents, wanted):
    """torch's forward mode: the tangents of the outputs, None where torch gives none."""
    with forward_ad.dual_level():
        for i in wanted:
            tensors[i] = forward_ad.make_dual(tensors[i], tangents[i].to(tensors[i].dtype))
        outs = [forward_ad.unpack_dual(x) for x in tensors_in(function(*tensors))]
        found = [None if o.tangent is None else o.tangent.detach() for o in outs]
    if all(x is None for x in found):
        raise TorchFails("forward mode")
    return found


def _sideways(function, tensors, tangents, wanted, weight=None):
    """([the weighted sum of the outputs' tangents], the weights), from reverse mode."""
    tensors = [t.requires_grad_(i in wanted) for i, t in enumerate(tensors)]
    grads, weight = _pullback(function, tensors, wanted, weight)
    if grads is None:
        return None, weight
    pairs = zip(grads, (tangents[i].to(g.dtype) for i, g in zip(wanted, grads)))
    return [sum((g.conj() * t).sum().real for g, t in pairs)], weight


def jvp(case: Case, jit: bool) -> str | None:
    """Compares the derivative along a drawn direction."""
    wanted = case.wanted
    if not wanted or undefined(case):
        return None
    along, weight = _tangents(case), None
    try:
        want = _forward(case.function, case.fresh(), along, wanted)
        torch64 = lambda f: _forward(case.wide, f(case.fresh()), along, wanted)
    except Exception:  # torch has no forward mode here
        want, weight = attempt(_sideways, case.function, case.fresh(), along, wanted)
        torch64 = lambda f: _sideways(case.wide, f(case.fresh()), along, wanted, weight)[0]
    if want is None:
        return None
    arrays, function = arrays_of(case), of_jax(case)
    moving = [interop.to_jax(along[i]) for i in wanted]

    def directional(chosen, moving):
        of_chosen = lambda chosen: function(
            *(dict(enumerate(arrays)) | dict(zip(wanted, chosen))).values()
        )
        return jax.jvp(of_chosen, (chosen,), (moving,))[1]

    got, eager = call(directional, jit, [arrays[i] for i in wanted], moving)
    if weight is not None:
        pairs = [(o, interop.to_jax(w)) for o, w in zip(got, weight) if w is not None]
        got = [sum((o * w).sum().real for o, w in pairs)]
    pairs = [(w, g) for w, g in zip(want, got) if w is not None]
    exact = lambda: ([x for x in torch64(f) if x is not None] for f in EXACT)
    return settle(compare(*zip(*pairs), case.size, exact), eager)


def _moves(tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def vmap(case: Case, jit: bool) -> str | None:
    """Compares jax.vmap over a batch with torch's results one by one."""
    batched = [i for i, t in enumerate(case.tensors) if _moves(t)]
    if not batched:
        return None
    scaled = lambda tensors, scale: [
        t * scale if i in batched else t for i, t in enumerate(tensors)
    ]
    batch = [scaled(case.fresh(), scale) for scale in SCALES]
    copies = lambda: [[t.clone() for t in tensors] for tensors in batch]
    with torch.no_grad():
        wants = [tensors_in(attempt(case.function, *tensors)) for tensors in copies()]
        drawn = undefined(case)
        stacked = [
            interop.to_jax(torch.stack(ts)) if i in batched else interop.to_jax(ts[0])
            for i, ts in enumerate(zip(*copies()))
        ]
        axes = tuple(0 if i in batched else None for i in range(len(stacked)))
        function = jax.vmap(of_jax(case), in_axes=axes)
        try:
            got = (jax.jit(function) if jit else function)(*stacked)
        except DataDependent as error:
            if ":" not in error.where:
                return "the DataDependent error names no line"
            raise Eager from error
        for i, (want, tensors) in enumerate(zip(wants, batch)):
            mine = [x[i] for x in got]
            exact = lambda ts=tensors: [case.wide(*f(ts)) for f in EXACT]
            if drawn:
                wrong = None if shapes(want) == shapes(mine) else f"{shapes(mine)}"
            else:
                wrong = compare(want, mine, case.size, exact)
            if wrong:
                return f"batch {i}: {wrong}"
    return None


def on_jax(case: Case, jit: bool) -> str | None:
    """Compares the outputs of the same code inside ``on_jax``, operator by operator."""
    with torch.no_grad():
        want = attempt(case.function, *case.fresh())
        drawn = undefined(case)
        tensors = interop_of_users.to_jax(case.fresh())
        with anyjax.torch.on_jax():
            got = case.function(*tensors)
        got = [interop_of_users.to_jax(x).jax() for x in tensors_in(got)]
        if drawn:
            return None if shapes(want) == shapes(got) else f"{shapes(got)}, torch {shapes(want)}"
        exact = lambda: [case.wide(*f(case.fresh())) for f in EXACT]
        return compare(tensors_in(want), got, case.size, exact)


def on_jax_grad(case: Case, jit: bool) -> str | None:
    """Compares torch's gradients of the same code inside ``on_jax``."""
    wanted = case.wanted
    if not wanted or undefined(case):
        return None
    want, weight = attempt(_pullback, case.function, case.fresh(True), wanted)
    if want is None:
        return None
    with anyjax.torch.on_jax():
        tensors = interop_of_users.to_jax(case.fresh(True))
        weighing = interop_of_users.to_jax(weight)
        got = [x.jax() for x in _pullback(case.function, tensors, wanted, weighing)[0]]
    grad64 = lambda f: _pullback(
        case.wide,
        [x.requires_grad_(i in wanted) for i, x in enumerate(f(case.fresh()))],
        wanted,
        weight,
    )[0]
    return compare(want, got, case.size, lambda: map(grad64, EXACT))


def bucketed(case: Case, jit: bool) -> str | None:
    """Compares the same for dynamic sizes, each of which is padded."""
    with mock.patch.object(dynamic, "bucket", lambda size: size + 3):
        return compiled(case, jit, dynamic=True)


def compiled(case: Case, jit: bool, dynamic: bool = False) -> str | None:
    """Compares outputs and gradients of the graphs that torch.compile hands over: the gradients are
    AOTAutograd's.
    """
    from functorch.compile import aot_function, min_cut_rematerialization_partition, nop

    compiler = partial(compile_graph, settings=settings_of())
    options = {"partition_fn": min_cut_rematerialization_partition, "dynamic": dynamic}
    graph = aot_function(case.function, compiler, **options)
    want = tensors_in(attempt(case.function, *case.fresh(True)))
    # Torch has a graph of it.
    attempt(aot_function(case.function, nop, dynamic=dynamic), *case.fresh(True))
    got = graph(*case.fresh(True))
    if undefined(case):
        wrong = shapes(want) != shapes(got)
        return f"{shapes(got)}, torch {shapes(want)}" if wrong else None
    exact = lambda: [tensors_in(case.wide(*f(case.fresh()))) for f in EXACT]
    arrays = [interop.to_jax(x.detach()) for x in tensors_in(got)]
    wrong = compare([x.detach() for x in want], arrays, case.size, exact)
    wanted = case.wanted
    if wrong or not wanted:
        return wrong
    want, weight = attempt(_pullback, case.function, case.fresh(True), wanted)
    if want is None:
        return None
    got, _ = _pullback(graph, case.fresh(True), wanted, weight)
    grad64 = lambda f: _pullback(
        case.wide,
        [x.requires_grad_(i in wanted) for i, x in enumerate(f(case.fresh()))],
        wanted,
        weight,
    )[0]
    return compare(want, [interop.to_jax(x) for x in got], case.size, lambda: map(grad64, EXACT))


def chosen(case: Case, jit: bool) -> str | None:
    """Compares the outputs where a mask, known to the program alone, chose the rows of all tensors
    that have as many as the first one; those that it left out are NaN.
    """
    count = next((len(x) for x in case.tensors if x.dim()), 0)
    if not count or undefined(case):
        return None
    with torch.no_grad():
        want = attempt(case.function, *case.fresh())
    mask = torch.tensor([False, *[True] * (count - 1), False, True, False])
    places = [i for i, x in enumerate(case.tensors) if x.dim() and len(x) == count]
    longer = [*case.fresh()]
    for i in places:
        rows = longer[i].new_full((len(mask), *longer[i].shape[1:]), 0)
        rows = rows.masked_fill(~mask.view(-1, *[1] * (rows.dim() - 1)), junk(rows.dtype))
        rows[mask] = longer[i]
        longer[i] = rows

    def function(mask, *tensors):
        rows = [x[mask] if i in places else x for i, x in enumerate(tensors)]
        return case.function(*rows)

    model = anyjax.from_torch(function)
    try:
        out = jax.jit(model.apply)({}, *(interop.to_jax(x) for x in (mask, *longer)))
    except DataDependent:
        raise Eager from None
    leaves = jax.tree.leaves(out, is_leaf=is_counted)
    wanted = tensors_in(want)
    assert len(leaves) == len(wanted), f"{len(leaves)} outputs, torch {len(wanted)}"
    got = [that_count(x, y) for x, y in zip(leaves, wanted)]
    exact = lambda: [tensors_in(case.wide(*f(case.fresh()))) for f in EXACT]
    if isinstance(want, (bool, int, float, complex)) and got:
        want = torch.tensor(want, dtype=case.tensors[0].dtype)
    with torch.no_grad():
        return compare(tensors_in(want), got, case.size, exact)


def junk(dtype: torch.dtype):
    """Returns a number that nothing may be computed from."""
    return float("nan") if dtype.is_floating_point or dtype.is_complex else dtype is not torch.bool


def that_count(x, like: torch.Tensor):
    """Returns the elements of a result that count, which are those of another one."""
    if not isinstance(x, anyjax.CountedArray):
        return x
    open_ = [n for n, most in zip(like.shape, x.values.shape) if n != most]
    counts = [int(n) for n in np.atleast_1d(x.length)]
    assert set(open_) <= set(counts) <= set(like.shape), f"{counts} count, torch {like.shape}"
    return x.values[tuple(map(slice, like.shape))]


MODES = {"values": values, "grad": gradients, "jvp": jvp, "vmap": vmap, "compiled": compiled}
MODES |= {"bucketed": bucketed, "chosen": chosen}
MODES |= {"on_jax": on_jax, "on_jax_grad": on_jax_grad}
__all__ = ["MODES", "Eager", "TorchFails"]
