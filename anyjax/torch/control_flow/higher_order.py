"""torch's higher-order operators as JAX's: ``cond``, ``while_loop``, ``scan``, ``map`` and
``checkpoint``. A loop's body draws from a key of its iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import torch
from jax import lax
from torch.utils._pytree import tree_unflatten

from anyjax.errors import Unsupported
from anyjax.torch.control_flow.flex_attention import flex_attention
from anyjax.torch.control_flow.region import Closed, Region
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.mask_limits import limits_of, note
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.tensor import value_of


def each(mode, region: Region, key, *arrays):
    """Returns one iteration, with its own randomness."""
    with mode.trace.keys.of(key):
        return region(*arrays)


def cond(mode, pred, true_fn, false_fn, operands):
    """``lax.cond``; a predicate that is known picks its branch now."""
    value = array_of(pred) if isinstance(pred, torch.Tensor) else pred
    if not isinstance(value, jax.core.Tracer):
        with mode:
            return (true_fn if bool(value) else false_fn)(*operands)
    if_true, if_false = (Closed(mode, f, operands) for f in (true_fn, false_fn))
    out = lax.cond(value.reshape(()), if_true, if_false, *if_true.arrays)
    if_true.origins = [x | y for x, y in zip(if_true.origins, if_false.origins)]
    return if_true.rebuild(out)


def while_loop(mode, cond_fn, body_fn, carried_inputs, additional_inputs):
    """A loop with derivatives in both modes; Python integers in the carry become tensors."""
    from anyjax.reversible import while_loop as loop  # it loads Pallas

    with mode:
        carried = [x if isinstance(x, torch.Tensor) else torch.tensor(x) for x in carried_inputs]
    condition = Closed(mode, lambda *xs: cond_fn(*xs, *additional_inputs), carried)
    body = Closed(mode, lambda *xs: list(body_fn(*xs, *additional_inputs)), carried)
    key = mode.trace.keys.split(1)
    fold_in = lambda count: None if key is None else jax.random.fold_in(key[0], count)

    test = lambda count, *arrays: condition(*arrays)[0].reshape(())
    step = lambda count, *arrays: [count + 1, *each(mode, body, fold_in(count), *arrays)]
    body.settle(len(carried), partial(each, mode, body, fold_in(0)))
    condition.given = body.given
    _, *out = loop(test, step, [jax.numpy.int32(0), *body.arrays])
    body.origins = [x | y for x, y in zip(body.origins, body.given)]
    return tuple(body.rebuild(out))


def scan(mode, combine_fn, init, xs, additional_inputs):
    """``lax.scan``. torch.scan's own wrapper tells how the carry is nested."""
    count = len(init)
    slices = lambda tensors: [x[0] for x in tensors]
    with mode:
        leaves = [*init, *slices(xs)]
    region = Closed(mode, lambda *rest: combine_fn(*rest, *additional_inputs), leaves)
    stacked = [array_of(x) for x in xs]
    length = stacked[0].shape[0]

    def step(carry, given):
        key, rows = given
        out = each(mode, region, key, *carry, *rows)
        return out[:count], out[count:]

    start = region.arrays[:count]
    keys = mode.trace.keys.split(length)
    region.settle(count, partial(each, mode, region, None if keys is None else keys[0]))
    carry, ys = lax.scan(step, start, (keys, stacked), length)
    out = region.rebuild([*carry, *ys])
    return out if "spec_init" in getattr(combine_fn, "keywords", {}) else tuple(flatten(out)[0])


def map_(mode, f, xs, pos_args, mutated_arg_indices=""):
    """``lax.scan`` without a carry. Mutated arguments are found by Dynamo, which does not run."""
    with mode:
        leaves = [x[0] for x in xs]
    region = Closed(mode, lambda *rest: f(*rest, *pos_args), leaves)
    stacked = [array_of(x) for x in xs]
    step = lambda _, given: (None, each(mode, region, given[0], *given[1]))
    ys = lax.scan(step, None, (mode.trace.keys.split(stacked[0].shape[0]), stacked))[1]
    return region.rebuild(ys)


OPTIONS = (
    "use_reentrant",
    "context_fn",
    "determinism_check",
    "debug",
    "early_stop",
    "preserve_rng_state",
)


def checkpoint(original, function, *args, **kwargs):
    """``jax.checkpoint``; what the function writes to the state is written after it."""
    kwargs = {k: v for k, v in kwargs.items() if k not in OPTIONS}
    return computed_again(function, args, kwargs)


def computed_again(function: Callable, args: tuple, kwargs: dict[str, Any], policy=None) -> Any:
    """Calls a function of tensors under ``jax.checkpoint`` with a policy of its own."""
    mode = next(m for m in reversed(private.function_modes()) if hasattr(m, "trace"))
    if mode.trace.tape is not None:  # gradients taken inside need what was computed
        return function(*args, **kwargs)
    leaves, structure = flatten((args, kwargs))

    def call(*leaves):
        args, kwargs = tree_unflatten(leaves, structure)
        return function(*args, **kwargs)

    region = Region(mode, call, leaves)

    def run(*arrays):
        for tensor, array in zip(region.tensors, arrays):
            if limits := limits_of(value_of(tensor)):
                note(array, limits)
        return region(*arrays), region.written

    out, written = jax.checkpoint(run, policy=policy)(*region.arrays)
    for name, array in written.items():
        tensor = mode.trace.state[name]
        tensor.copy_(region.wrap(array, tensor.dtype))
    return region.rebuild(out)


RULES: dict[Any, Callable] = {
    private.flex_attention_op: flex_attention,
    private.cond_op: cond,
    private.while_loop_op: while_loop,
    private.scan_op: scan,
    private.map_op: map_,
}


class HigherOrder:
    """All higher-order operators, but for torch's own serving of custom functions in its vmap."""

    def __contains__(self, func: object) -> bool:
        return isinstance(func, private.HigherOrderOperator)


def vmapped(func: object) -> bool:
    """Returns whether torch itself serves a custom function, which it can inside ``torch.vmap``
    alone.
    """
    levels = private.transforms() or []
    return func is private.custom_function_call and all(x.key() == private.VMAP for x in levels)


def serve(mode, op, args, kwargs) -> Any:
    """Serves a higher-order operator: by its rule, else by torch's own Python for dense tensors."""
    if vmapped(op):
        return NotImplemented
    inside = [x for x in flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    if any(private.level_of(x) != -1 for x in inside):
        raise Unsupported(
            f"{op} inside torch.func",
            where=diagnostics.where(),
            why="torch transforms its branches with its own compiler",
            do="transform the converted model with jax.vmap or jax.grad",
        )
    if op in RULES:
        return mode.trace.whole(partial(RULES[op], mode), *args, **kwargs)
    if private.DENSE not in op.py_kernels:
        raise Unsupported(
            f"the higher-order operator {op}",
            where=diagnostics.where(),
            why="it has no rule here and no Python form in torch",
            do="replace it in the module by what it computes",
        )
    with mode:
        return op.py_kernels[private.DENSE](*args, **kwargs)
