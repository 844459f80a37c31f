"""The modules inside of a module."""

from __future__ import annotations

import torch


def named_modules(root: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Returns every module by its path, "" for the root, in the order of torch's ``named_modules``.

    That is a generator in a generator for each level, which for a model of some hundred modules
    takes ten times as many calls.
    """
    modules: dict[str, torch.nn.Module] = {}
    seen: set[int] = set()
    pending = [("", root)]
    while pending:
        path, module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        modules[path] = module
        inside = f"{path}." if path else ""
        for name, child in reversed([*module._modules.items()]):
            if child is not None:
                pending.append((inside + name, child))
    return modules
