"""Calls of submodules in a trace: their paths as scopes of the program, and the taps on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import torch

from tojax import trees
from tojax.torch.compat.patches import replaces
from tojax.torch.core import current_trace, private
from tojax.torch.core.dtypes import of_input, to_jax
from tojax.torch.core.lifting import array_of, inner, lift
from tojax.torch.core.tensor import JaxTensor, origins_of

if TYPE_CHECKING:
    from jaxtyping import PyTree


@replaces(private.CALL_MODULE, probe=lambda: torch.nn.Identity()(0))
def call_module(original: Callable, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Calls a submodule in the scope of its path; taps see what goes in and comes out."""
    trace = current_trace.trace()
    path = trace.paths.get(id(module))
    if not path:
        return original(module, *args, **kwargs)
    outer, trace.module = trace.module, path
    try:
        with jax.named_scope(path.removeprefix(f"{outer}.")):
            return _tapped(trace, original, module, args, kwargs)
    finally:
        trace.module = outer


def _tapped(trace: Any, original: Callable, module: torch.nn.Module, args, kwargs) -> Any:
    readings, path = trace.readings, trace.module
    taps = readings.at(path) if readings is not None else ()
    if not taps:
        return original(module, *args, **kwargs)
    edit = lambda function, out: trace.whole(_on_tensors(function), out)
    edit_plain = lambda function, inputs: _on_plain(partial(edit, function), inputs)
    args, kwargs = readings.enter(taps, path, (args, kwargs), arrays, edit_plain)
    out = original(module, *args, **kwargs)
    return readings.leave(taps, path, out, arrays, edit)


def _on_plain(edit: Callable[[PyTree], PyTree], inputs: PyTree) -> Any:
    """Edits the tensors in plain containers, by place; others, such as caches, are written to."""
    leaves, structure = trees.plain_leaves(inputs)
    tensors = {place: x for place, x in leaves.items() if isinstance(x, torch.Tensor)}
    return jax.tree.unflatten(structure, (leaves | edit(tensors)).values())


def arrays(tree: PyTree) -> Any:
    """Returns a tree with arrays in the place of tensors, as they are now."""
    is_tensor = lambda x: isinstance(x, torch.Tensor)
    array = lambda x: array_of(x) if isinstance(x, torch.Tensor) else x
    return trees.plain_dicts(jax.tree.map(array, trees.register(tree), is_leaf=is_tensor))


def _on_tensors(function: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Returns a function of arrays as one of tensors; dtypes stay torch's where JAX's stay."""

    def edited(out: PyTree) -> PyTree:
        tensors = [x for x in jax.tree.leaves(trees.register(out)) if isinstance(x, torch.Tensor)]
        origins = origins_of([inner(x) for x in tensors])
        dtypes = {to_jax(x.dtype): x.dtype for x in tensors}

        def tensor(x: Any) -> Any:
            if not trees.is_array(x):
                return x
            array = jax.numpy.asarray(x)
            return lift(JaxTensor(array, dtypes.get(array.dtype) or of_input(array.dtype), origins))

        return jax.tree.map(tensor, function(arrays(out)))

    return edited
