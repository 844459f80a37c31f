"""``torch.autograd.Function`` becomes ``jax.custom_vjp``: its backward counts, not the derivative
of its forward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from tojax.dtypes import is_float
from tojax.errors import Unsupported
from tojax.torch.tensor import JaxTensor

OWNER = torch.autograd.function._SingleLevelFunction  # also called by an ``apply`` kept from before


class Context:
    """What ``forward`` leaves for ``backward``: saved tensors, attributes, which inputs want
    gradients.
    """

    saved_tensors: tuple = ()

    def __init__(self, wanted: tuple[bool, ...] = ()):
        self.needs_input_grad = wanted

    def save_for_backward(self, *tensors):
        """Keeps tensors."""
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_non_differentiable(self, *tensors):
        """Nothing to do: integers have no gradient in JAX, and backward ignores the others."""

    def set_materialize_grads(self, value):
        """Nothing to do: JAX gives zeros."""

    def mark_dirty(self, *tensors):
        """A write that autograd is told of by hand."""
        raise Unsupported(
            "ctx.mark_dirty",
            why="a custom gradient of an in-place operator has no JAX form",
            do="return a new tensor",
        )


@contextlib.contextmanager
def custom_gradients(
    enter: Callable[[Any], Any], active: Callable[[], bool], array_of, lift, branch
) -> Iterator[None]:
    """Serves ``Function.apply`` of this thread's trace; ``enter`` draws from another key, in a new
    trace where none is active, ``branch`` gives such a key.
    """

    def apply(cls, *args, **kwargs):
        leaves, structure = tree_flatten(args)
        places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        if kwargs or not active() or not places:
            return super(OWNER, cls).apply(*args, **kwargs)
        tensors = [leaves[i] for i in places]
        wrap = lambda arrays: [lift(JaxTensor(a, t.dtype)) for a, t in zip(arrays, tensors)]
        shape_of: list[Any] = []

        def forward(arrays):
            full = list(leaves)
            for place, tensor in zip(places, wrap(arrays)):
                full[place] = tensor
            inputs = tree_unflatten(full, structure)
            ctx = Context(
                tuple(isinstance(x, torch.Tensor) and x.is_floating_point() for x in inputs)
            )
            if cls.setup_context is torch.autograd.function._SingleLevelFunction.setup_context:
                out = cls.forward(ctx, *inputs)
            else:
                out = cls.forward(*inputs)
                cls.setup_context(ctx, inputs, out)
            flat, spec = tree_flatten(out)
            shape_of[:] = [[x.dtype if isinstance(x, torch.Tensor) else x for x in flat], spec]
            return [array_of(x) for x in flat if isinstance(x, torch.Tensor)], ctx

        given = leaves, places, structure
        return _call(cls, forward, tensors, given, shape_of, enter, array_of, lift, branch())

    OWNER.apply = classmethod(apply)
    try:
        yield
    finally:
        del OWNER.apply


def _call(cls, forward, tensors, given, shape_of, enter, array_of, lift, keys):
    """``keys`` are for forward and backward; arguments, for JAX may trace both again later."""
    kept: list[Any] = []

    def primal(keys, *arrays):
        with enter(keys[0]):
            return forward(arrays)[0]

    def fwd(keys, *arrays):
        with enter(keys[0]):
            out, ctx = forward(arrays)
            held, kept[:] = tree_flatten(vars(ctx))[0], [tree_flatten(vars(ctx))[1]]
            static = [None if isinstance(x, torch.Tensor) else x for x in held]
            kept.extend([static, [x.dtype if isinstance(x, torch.Tensor) else None for x in held]])
            return out, (keys, [array_of(x) for x in held if isinstance(x, torch.Tensor)])

    def bwd(residuals, cotangents):
        keys, saved = residuals
        with enter(keys[1]):
            spec, static, dtypes = kept
            rest = iter(saved)
            held = [
                lift(JaxTensor(next(rest), d)) if d is not None else s
                for s, d in zip(static, dtypes)
            ]
            ctx = Context()
            vars(ctx).update(tree_unflatten(held, spec))
            given_back = iter(cotangents)
            incoming = [
                next(given_back) if isinstance(x, torch.dtype) else None for x in shape_of[0]
            ]
            wanted = lambda g: g is not None and is_float(g.dtype)
            incoming = [lift(JaxTensor(g)) if wanted(g) else None for g in incoming]
            grads = cls.backward(ctx, *incoming)
            grads = grads if isinstance(grads, tuple) else (grads,)
            grads = _of_tensors(grads, *given)
            return None, *(_cotangent(t, g, array_of) for t, g in zip(tensors, grads))

    function = jax.custom_vjp(primal)
    function.defvjp(fwd, bwd)
    out = function(keys, *[array_of(t) for t in tensors])
    rest = iter(out)
    leaves = [
        lift(JaxTensor(next(rest), x)) if isinstance(x, torch.dtype) else x for x in shape_of[0]
    ]
    return tree_unflatten(leaves, shape_of[1])


def _of_tensors(grads, leaves, places, structure):
    """The gradients of the tensors, of one per argument that backward returns."""
    arguments = tree_unflatten(list(range(len(leaves))), structure)
    by_leaf = {a: g for a, g in zip(arguments, grads) if isinstance(a, int)}
    return [by_leaf.get(i) for i in places]


def _cotangent(tensor, grad, array_of):
    array = array_of(tensor)
    if not is_float(array.dtype):
        return np.zeros(array.shape, jax.dtypes.float0)
    return (
        jax.numpy.zeros(array.shape, array.dtype)
        if grad is None
        else array_of(grad).astype(array.dtype)
    )
