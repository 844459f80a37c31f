"""Leaves of torch's autograd: tensors that no operator made, whose gradients go into ``.grad``.

A write inside ``no_grad``, whole or through a view, gives a leaf another value and leaves it one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import jax
import torch

from anyjax.torch.aliasing.no_grad import with_gradient_of
from anyjax.torch.aliasing.no_grad_views import functional, of_one_memory
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.lifting import array_of, inner
from anyjax.torch.core.tensor import JaxTensor


def hold(jax_tensor: JaxTensor, tensor: torch.Tensor) -> None:
    """The functional tensor gets the gradient of what it holds now in ``.grad``."""
    trace = current_trace.trace()
    jax_tensor.holder = weakref.ref(tensor)
    trace.leaves[id(tensor)] = jax_tensor.holder
    if trace.tape is not None:
        trace.tape.leaves.append(jax_tensor)


def set_array(tensor: torch.Tensor, array: jax.Array) -> None:
    """Gives a traced tensor another value, whose gradient is that of the value before; a leaf
    stays one.
    """
    jax_tensor = inner(tensor)
    new = jax_tensor.alone()
    new.array, new.retained = with_gradient_of(jax_tensor.array, array), jax_tensor.retained
    if jax_tensor.holder is not None:
        hold(new, tensor)
    elif (tape := current_trace.trace().tape) is not None:
        tape.note(lambda before: [with_gradient_of(before, array)], [jax_tensor], [new])
    private.replace(tensor, new)


@contextmanager
def kept(leaves: Iterable[weakref.ref], tensor: torch.Tensor) -> Iterator[None]:
    """Keeps those ``leaves`` that a write to this tensor, which autograd does not see, changes."""
    changed = [
        (leaf, inner(leaf))
        for ref in (leaves if functional(tensor) else ())
        if (leaf := ref()) is not None and of_one_memory(leaf, tensor)
    ]
    yield
    for leaf, value in changed:
        with private.DisableTorchFunction():
            private.sync(leaf)
        array = array_of(leaf)
        private.replace(leaf, value)
        set_array(leaf, array)
        if private.is_base(leaf):  # views of it are views of the leaf from now on
            private.commit_update(leaf)
