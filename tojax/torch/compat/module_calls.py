"""Calls of submodules in a trace: their paths as scopes of the program, and the taps on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import torch

from tojax import trees
from tojax.torch.compat.patches import Patch, applied
from tojax.torch.core import current_trace, private
from tojax.torch.core.dtypes import of_input, to_jax
from tojax.torch.core.lifting import array_of, inner, lift
from tojax.torch.core.tensor import JaxTensor, origins_of

if TYPE_CHECKING:
    from jaxtyping import PyTree


@contextlib.contextmanager
def scoped(trace: Any, modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Puts the paths of modules into the names of what they compute, and serves taps on them.

    Scopes are opened and closed by hooks. Replacing a method of ``nn.Module`` would serve both, but
    it drops Python's caches of all classes of modules, which costs a fifth of the time of a trace:
    so it is done for taps alone. A forward of each module's own would be the fastest, and wrong in
    copies that a model makes of its modules.
    """
    open_scopes: list[tuple[torch.nn.Module, str, contextlib.AbstractContextManager]] = []

    def enter(module: torch.nn.Module, args: Any) -> None:
        path = trace.paths.get(id(module))
        if path and current_trace.trace() is trace:
            outer = open_scopes[-1][1] if open_scopes else ""
            scope = jax.named_scope(path.removeprefix(f"{outer}."))
            scope.__enter__()
            open_scopes.append((module, path, scope))

    def leave(module: torch.nn.Module, args: Any, out: Any) -> None:
        if id(module) in trace.paths and current_trace.trace() is trace:
            close(module)

    def close(module: torch.nn.Module | None) -> None:
        """Closes the scopes up to a module's, whose inner ones an exception may have left open."""
        while open_scopes:
            inner_module, _, scope = open_scopes.pop()
            scope.__exit__(None, None, None)
            if inner_module is module:
                return

    with contextlib.ExitStack() as stack:
        stack.callback(close, None)
        for module in modules:
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave).remove)
        if trace.readings is not None:
            tapped = [Patch(private.CALL_MODULE, _tapped)]
            stack.enter_context(applied(tapped, lambda: current_trace.trace() is trace))
        yield


def _tapped(original: Callable, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Calls a module; taps see what goes in and comes out."""
    trace = current_trace.trace()
    readings, path = trace.readings, trace.paths.get(id(module), "")
    taps = readings.at(path) if path else ()
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
