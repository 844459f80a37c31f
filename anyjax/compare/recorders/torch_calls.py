"""Calls of a module in torch: watched from outside, and undone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch.utils.hooks import RemovableHandle

from anyjax.typing import PyTree


@contextlib.contextmanager
def watched(
    modules: Iterable[tuple[str, torch.nn.Module]],
    enter: Callable[[str, tuple, dict], PyTree] = lambda *_: None,
    leave: Callable[[str, tuple, dict, PyTree], PyTree] = lambda *_: None,
    replaces: bool = False,
) -> Iterator[None]:
    """Calls ``enter(name, args, kwargs)`` before each call of these named modules, and
    ``leave(name, args, kwargs, out)`` after it, where it fails with None for ``out``. With
    ``replaces``, what they return takes the place of ``(args, kwargs)`` and of the output, None of
    neither.
    """
    result = lambda x: x if replaces else None
    with contextlib.ExitStack() as stack:
        for name, module in modules:
            _watch(stack, name, module, enter, lambda *call: result(leave(*call)), result)
        yield


def _watch(
    stack: contextlib.ExitStack,
    name: str,
    module: torch.nn.Module,
    enter: Callable[[str, tuple, dict], PyTree],
    leave: Callable[[str, tuple, dict, PyTree], PyTree],
    result: Callable[[PyTree], PyTree],
) -> None:
    """Hooks a module until the stack is left. What a model's own hooks see is what its code gave,
    as in JAX: those that transformers adds in a call collect hidden states.
    """
    on_return = lambda _, args, kwargs, out: leave(name, args, kwargs, out)
    last: list[RemovableHandle] = []

    def on_entry(_: torch.nn.Module, args: tuple, kwargs: dict) -> PyTree:
        for handle in last:
            handle.remove()
        last[:] = [module.register_forward_hook(on_return, with_kwargs=True, always_call=True)]
        return result(enter(name, args, kwargs))

    first = module.register_forward_pre_hook(on_entry, with_kwargs=True, prepend=True)
    stack.callback(lambda: [handle.remove() for handle in (first, *last)])


def submodules(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields the modules inside of one, by path."""
    return ((path, inner) for path, inner in module.named_modules() if path)


@contextlib.contextmanager
def unmodified(module: torch.nn.Module) -> Iterator[None]:
    """Restores what the module holds on exit: no caches of a call stay, buffers are as before."""
    namespaces = [vars(submodule) for submodule in module.modules()]
    containers = [
        x for namespace in namespaces for x in namespace.values() if isinstance(x, (dict, list))
    ]
    copies = [(x, x.copy()) for x in (*namespaces, *containers)]
    buffers = [(x, x.clone()) for x in module.buffers()]
    try:
        yield
    finally:
        for namespace, values in copies:
            namespace.clear()
            namespace.extend(values) if isinstance(namespace, list) else namespace.update(values)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
