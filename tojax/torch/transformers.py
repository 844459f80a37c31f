"""The few functions of transformers that are replaced during a trace, where they are loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tojax.errors import DataDependent
from tojax.torch.ways import undivided


def get_interface(original, self, implementation, default):
    """The loop over the experts that are hit, or the same as grouped products over all of them."""
    chosen = original(self, implementation, default)
    if chosen is not default:
        return chosen

    def forward(module, *args, **kwargs):
        try:
            with undivided():
                return default(module, *args, **kwargs)
        except DataDependent:
            return self["grouped_mm"](module, *args, **kwargs)

    return forward


def is_torchdynamo_compiling(original):
    """Told so, a model inside another one ends the recording of the outer one's hidden states."""
    return False


# module, the attribute that owns the function ("" for the module), function, replacement
REPLACED: list[tuple[str, str, str, Callable]] = [
    ("integrations.moe", "ExpertsInterface", "get_interface", get_interface),
    ("utils.output_capturing", "", "is_torchdynamo_compiling", is_torchdynamo_compiling),
]


def patches() -> list[tuple[Any, str, Callable]]:
    """(owner, name, replacement) of those that are loaded."""
    modules = [sys.modules.get(f"transformers.{row[0]}") for row in REPLACED]
    return [
        (getattr(module, owner) if owner else module, name, replacement)
        for module, (_, owner, name, replacement) in zip(modules, REPLACED)
        if module
    ]
