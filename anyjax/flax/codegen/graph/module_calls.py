"""Calls of a module in torch: watched from outside, and undone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch


@contextlib.contextmanager
def watched(
    modules: Iterable[tuple[str, torch.nn.Module]],
    enter: Callable[[str, tuple, dict], object] = lambda *_: None,
    leave: Callable[[str, tuple, dict, object], object] = lambda *_: None,
) -> Iterator[None]:
    """Calls ``enter(name, args, kwargs)`` before each call of these named modules, and
    ``leave(name, args, kwargs, out)`` after it, where it fails with None for ``out``.
    """
    handles = []
    for name, module in modules:

        def before(_, args, kwargs, name=name):
            enter(name, args, kwargs)

        def after(_, args, kwargs, out, name=name):
            leave(name, args, kwargs, out)

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after, with_kwargs=True, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


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
