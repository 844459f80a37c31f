"""Picks the frontend by type, nothing else."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from typing import Any

from tojax.errors import Unsupported
from tojax.model import Model


def convert(source: Any, *example_args: Any) -> Model:
    """Anything that a frontend knows as a Model: a torch module or function, or a checkpoint
    folder.

    Args:
      source: what to convert.
      *example_args: for frontends that need them; torch does not.

    Raises:
      Unsupported: no frontend takes an object of this type.

    Example:
      >>> import torch
      >>> tojax.convert(torch.nn.ReLU()).source.name
      'ReLU'
    """
    for frontend in entry_points(group="tojax.frontends"):
        takes, make = frontend.load()
        if takes(source):
            return make(source, *example_args)
    if isinstance(source, (str, os.PathLike)):
        import tojax

        return tojax.from_pretrained(source)
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(source, torch.nn.Module) or callable(source)):
        from tojax.torch import from_torch

        return from_torch(source)
    raise Unsupported(
        f"no frontend takes a {type(source).__name__}",
        why="known are torch modules and functions, checkpoint folders and hub ids",
        do="declare a frontend of your own as an entry point in the group tojax.frontends",
    )
