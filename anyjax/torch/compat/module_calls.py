"""Calls of submodules in a trace: their paths as scopes of the program, and the taps on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import torch

from anyjax import trees
from anyjax.torch.autograd.jax_program import Program, flat
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.lifting import array_of, inner, lift, untransformed
from anyjax.torch.core.tensor import JaxTensor, origins_of
from anyjax.typing import PyTree


@contextlib.contextmanager
def scoped(trace: Any, modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Puts the paths of modules into the names of what they compute, and serves taps on them.

    The calls are replaced as ``Module.compile`` does it: copies that a model makes of its modules
    are without it, and no class changes, which would drop Python's caches of all modules.
    """
    replaced: list[tuple[dict, Any]] = []
    try:
        for module in modules:
            path, attributes = trace.paths[id(module)], module.__dict__
            original = attributes.get(private.CALL_INSTEAD)
            call = original or getattr(module, private.CALL_MODULE)
            replaced.append((attributes, original))
            attributes[private.CALL_INSTEAD] = partial(_call, trace, path, call)
        yield
    finally:
        for attributes, original in reversed(replaced):
            attributes[private.CALL_INSTEAD] = original
            if original is None:
                del attributes[private.CALL_INSTEAD]


def _call(trace: Any, path: str, call: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a module in its scope; taps see what goes in and comes out."""
    if current_trace.trace() is not trace:
        return call(*args, **kwargs)
    outer, trace.module_path = trace.module_path, path
    try:
        with jax.named_scope(path.removeprefix(f"{outer}.")):
            readings = trace.readings
            taps = readings.at(path) if readings is not None else ()
            # a value of another pass would have no derivative
            if taps and is_transformed((args, kwargs)):
                taps = [i for i in taps if not readings.is_lenient_edit(i)]
            if not taps:
                return call(*args, **kwargs)
            edit = lambda function, out: trace.whole(on_tensors(function), out)
            edit_plain = lambda function, inputs: _on_plain(partial(edit, function), inputs)
            args, kwargs = readings.enter(taps, path, (args, kwargs), arrays, edit_plain)
            return readings.leave(taps, path, call(*args, **kwargs), arrays, edit)
    finally:
        trace.module_path = outer


def is_transformed(tree: PyTree) -> bool:
    """Returns whether torch.func differentiates or maps one of the tensors."""
    tensors = (x for x in jax.tree.leaves(tree) if isinstance(x, torch.Tensor))
    return any(private.level_of(x) != -1 for x in tensors)


def _on_plain(edit: Callable[[PyTree], PyTree], inputs: PyTree) -> Any:
    """Edits the tensors in plain containers, by place; others, such as caches, are written to."""
    leaves, structure = trees.plain_leaves(inputs)
    tensors = {place: x for place, x in leaves.items() if isinstance(x, torch.Tensor)}
    return jax.tree.unflatten(structure, (leaves | edit(tensors)).values())


def arrays(tree: PyTree) -> Any:
    """Returns a tree with arrays in the place of tensors, as they are now."""
    is_tensor = lambda x: isinstance(x, torch.Tensor)
    array = lambda x: array_of(untransformed(x)) if isinstance(x, torch.Tensor) else x
    return trees.plain_dicts(jax.tree.map(array, trees.register(tree), is_leaf=is_tensor))


def on_tensors(function: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Returns a function of arrays as one of tensors; dtypes stay torch's where JAX's stay, and
    tensors whose arrays stay are the same ones, which others may refer to.
    """

    def edited(out: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(((trees.register(out),), {}))
        tensors = {i: x for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)}
        if is_transformed(tensors):  # torch.func asks about it
            constants = {i: x for i, x in enumerate(leaves) if i not in tensors}
            return Program(flat(function, structure, (*tensors,), constants))(*tensors.values())
        origins = origins_of([inner(x) for x in tensors.values()])
        dtypes = {to_jax(x.dtype): x.dtype for x in tensors.values()}

        def tensor(number: int, x: PyTree) -> Any:
            if not trees.is_array(x):
                return x
            if number in tensors and x is unchanged.get(number):
                return tensors[number]
            array = jax.numpy.asarray(x)
            return lift(JaxTensor(array, dtypes.get(array.dtype), origins))

        of_out = arrays(out)
        of_leaves = jax.tree.leaves(of_out)
        unchanged = dict(enumerate(of_leaves)) if len(of_leaves) == len(leaves) else {}
        new_leaves, structure = jax.tree.flatten(function(of_out))
        return jax.tree.unflatten(structure, [*map(tensor, range(len(new_leaves)), new_leaves)])

    return edited


def inlined(function: Callable[..., PyTree], args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns what a function of arrays gives for tensors of the trace that goes on."""
    apply = on_tensors(lambda call: function(*call[0], **call[1]))
    return current_trace.trace().whole(apply, (args, kwargs))
