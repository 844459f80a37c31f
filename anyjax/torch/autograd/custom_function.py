"""``torch.autograd.Function`` becomes ``jax.custom_vjp``: its backward counts, not the derivative
of its forward.

torch's ``apply`` is C++, and code keeps it in variables. But it asks the class for
``_backward_cls``, ``forward`` and ``setup_context``, in this order, and these are served by
properties of the metaclass while a thread traces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from torch.utils._pytree import tree_unflatten

from anyjax.dtypes import is_float, shape_of
from anyjax.errors import Unsupported
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.tensor import JaxTensor
from anyjax.trees import Static


class Context:
    """The ``ctx`` from ``forward`` to ``backward``: saved tensors, attributes, which inputs need
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


class Applying(threading.local):
    """How far torch has come with an ``apply`` in this thread."""

    cls: type | None = None  # its forward comes next
    follows = True  # whether autograd was on around it
    done: type | None = None  # its setup_context comes next, which ours has called


APPLYING = Applying()


def backward_class(own: Callable[[type], Any], cls: type) -> Any:
    """Asked for when a call of ``apply`` begins, also of one that was kept from before."""
    APPLYING.cls, APPLYING.follows = cls, torch.is_grad_enabled()
    return own(cls)


def forward(own: Callable[[type], Any], cls: type) -> Any:
    """Returns the function itself, or what serves it where ``apply`` asks for it."""
    function = own(cls)
    if APPLYING.cls is not cls:
        return function
    APPLYING.cls = None
    served = Served(cls, function, current_trace.trace())
    follows = APPLYING.follows

    def serve(*args: Any) -> Any:
        with torch.set_grad_enabled(follows):  # torch has switched it off
            out = current_trace.trace().whole(served, args if served.setup else args[1:])
        APPLYING.done = cls if served.setup else None
        return out

    return serve


def setup_context(own: Callable[[type], Any], cls: type) -> Any:
    """Returns the function itself, or nothing where forward was served."""
    if APPLYING.done is not cls:
        return own(cls)
    APPLYING.done = None
    return lambda ctx, inputs, output: None


class Served:
    """One call of ``forward`` as a function with a gradient of its own.

    The program keeps it, so that it has no tensor of the trace: of each it has the dtype, the
    origins and the array's shape and dtype.
    """

    def __init__(self, cls: Any, function: Callable, trace: Any):
        self.cls, self.function, self.new_trace = cls, function, trace.again
        setup = cls.setup_context
        sets_up_itself = setup is private.SingleLevelFunction.setup_context
        self.setup = None if sets_up_itself else setup
        self.leaves: list[Any] = []
        self.structure: Any = None
        self.out: Any = None
        self.context: Any = None

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Served) and self._form() == other._form()

    def __hash__(self) -> int:
        return hash((self.cls, self.function))

    def _form(self) -> Any:
        """Returns a key that is equal for equal functions of the arrays."""
        leaves = [x if i in self.places else Static(x) for i, x in enumerate(self.leaves)]
        context = self.context.structure, [*map(Static, self.context.static)]
        return self.cls, self.function, self.new_trace, self.structure, leaves, context

    def __call__(self, args: tuple) -> Any:
        self.leaves, self.structure = flatten(args)
        tensors = {i: x for i, x in enumerate(self.leaves) if isinstance(x, torch.Tensor)}
        self.places = [*tensors]
        self.origins = [getattr(inner(x), "origins", 0) for x in tensors.values()]
        arrays = [*map(array_of, tensors.values())]
        self.shapes = [*map(shape_of, arrays)]
        for place, tensor in tensors.items():
            self.leaves[place] = tensor.dtype
        function = jax.custom_vjp(lambda keys, *arrays: self.fwd(keys, *arrays, alone=True)[0])
        function.defvjp(self.fwd, self.bwd)
        keys = current_trace.trace().keys.split(2)
        out = function([None, None] if keys is None else [*keys], *arrays)
        return self.out.rebuild(out)

    def fwd(self, keys, *arrays, alone=False):
        """Returns (the tensors of the output, what backward needs), as arrays; ``alone`` where JAX
        asks for no gradient.
        """
        full = list(self.leaves)
        with drawing_from(self.new_trace, keys[0]):
            for place, origins, array in zip(self.places, self.origins, arrays):
                full[place] = lift(JaxTensor(array, self.leaves[place], origins))
            inputs = tree_unflatten(full, self.structure)
            wants = (lambda x: x.requires_grad) if alone else torch.Tensor.is_floating_point
            ctx = Context(tuple(isinstance(x, torch.Tensor) and wants(x) for x in inputs))
            if self.setup is None:
                out = self.function(ctx, *inputs)
            else:
                out = self.function(*inputs)
                self.setup(ctx, inputs, out)
            self.out, self.context = Form(out), Form(vars(ctx))
            return self.out.arrays(out), (keys, self.context.arrays(vars(ctx)))

    def bwd(self, residuals, cotangents):
        """Returns the gradients of the tensors, by the class's own backward."""
        keys, saved = residuals
        with drawing_from(self.new_trace, keys[1]):
            ctx = Context()
            vars(ctx).update(self.context.rebuild(saved))
            grads = self.cls.backward(ctx, *self.out.incoming(cotangents))
            grads = grads if isinstance(grads, tuple) else (grads,)
            grads = _of_tensors(grads, self.leaves, self.places, self.structure)
            return None, *(_cotangent(t, g) for t, g in zip(self.shapes, grads))


class Form:
    """How a tree of tensors and other things becomes arrays and back."""

    def __init__(self, tree: Any):
        leaves, self.structure = flatten(tree)
        self.static = [x.dtype if isinstance(x, torch.Tensor) else x for x in leaves]

    def arrays(self, tree: Any) -> list[jax.Array]:
        """Returns the arrays of the tensors in it."""
        return [array_of(x) for x in flatten(tree)[0] if isinstance(x, torch.Tensor)]

    def rebuild(self, arrays: Any) -> Any:
        """Returns the tree, of such arrays."""
        rest = iter(arrays)
        lifted = lambda x: lift(JaxTensor(next(rest), x)) if isinstance(x, torch.dtype) else x
        return tree_unflatten([lifted(x) for x in self.static], self.structure)

    def incoming(self, cotangents: Any) -> list[torch.Tensor | None]:
        """Returns the gradients of all leaves, given those of the tensors among them."""
        rest = iter(cotangents)
        arrays = [next(rest) if isinstance(x, torch.dtype) else None for x in self.static]
        return [None if g is None or not is_float(g.dtype) else lift(JaxTensor(g)) for g in arrays]


def drawing_from(new_trace: Callable[[Any], Any], key: Any) -> Any:
    """Returns the trace that goes on, or one that ``new_trace`` makes, drawing from another key:
    JAX may trace a function again when that is over.
    """
    now = current_trace.trace()
    return new_trace(key) if now is None else now.drawing(key)


def _of_tensors(grads, leaves, places, structure):
    """Returns the gradients of the tensors, of one per argument that backward returns."""
    arguments = tree_unflatten(list(range(len(leaves))), structure)
    by_leaf = {a: g for a, g in zip(arguments, grads) if isinstance(a, int)}
    return [by_leaf.get(i) for i in places]


def _cotangent(array, grad):
    if not is_float(array.dtype):
        return np.zeros(array.shape, jax.dtypes.float0)
    return (
        jax.numpy.zeros(array.shape, array.dtype)
        if grad is None
        else array_of(grad).astype(array.dtype)
    )
