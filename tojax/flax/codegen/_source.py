"""``tojax.flax.source``."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from tojax.errors import Unsupported, WrongArguments
from tojax.flax.codegen.blocks import tree
from tojax.flax.codegen.classes import Writer
from tojax.flax.codegen.exporting import exported
from tojax.flax.codegen.linen_style import Linen
from tojax.flax.codegen.nnx_style import Nnx
from tojax.flax.codegen.operators import Unwritable
from tojax.flax.codegen.partly import leavable

STYLES = {"nnx": Nnx(), "linen": Linen()}


def source(
    module: torch.nn.Module,
    *args: Any,
    style: str = "nnx",
    partial: bool = False,
    **kwargs: Any,
) -> str:
    """A PyTorch module as readable Flax source code.

    One class for each class of the module, with its name, its submodules' names and its author's
    variables; the file imports only jax and flax. Its weights come from PyTorch: in nnx by
    ``load_params(model, weights)``, in Linen as ``variables = load_params(weights)``.
    Run as ``python model.py WEIGHTS EXAMPLE.npz`` it compares itself with outputs of PyTorch's.

    Args:
      module: what to write; it is put into evaluation mode while it is looked at. Dropout and
        BatchNorm are Flax's, which ``model.train()`` and ``model.eval()`` switch, in Linen
        ``deterministic=False``. Attention's rate of dropout is that of a call in training mode;
        what else only training mode does in Python is not written.
      *args, **kwargs: an example of its inputs. Give every size that may vary a value above 1;
        sizes stay symbolic unless the module decides something by them. Where its Python code
        does, the file has the example's way and refuses other sizes; a size of 1 takes the way of
        larger ones.
      style: "nnx" or "linen".
      partial: leave the innermost submodules that cannot be written in PyTorch, in nnx: the file
        then imports tojax, and ``connect(model, module)`` gives these parts their modules.

    Returns:
      The text of a Python file.

    Raises:
      WrongArguments: this is no module, it fails on this example, or the style is unknown.
      Unsupported: torch.export refuses the module, or one of its operators cannot be written; the
        error names its line.

    Example:
      >>> import torch
      >>> text = tojax.flax.source(torch.nn.Linear(3, 2), torch.ones(4, 3))
      >>> print(text[text.index("class") : text.index("def load_params")].strip())
      class Linear(nnx.Module):
          def __init__(self, in_features=3, out_features=2, *, rngs: nnx.Rngs):
      ...
    """
    _check(module, style, partial)
    training = {part: part.training for part in module.modules()}
    if "use_cache" in inspect.signature(module.forward).parameters:
        kwargs.setdefault("use_cache", False)  # what is kept between calls is no part of a forward
    try:
        graph = exported(module.eval(), args, kwargs)
    finally:
        for part, mode in training.items():
            part.training = mode
    root = tree(graph, module)
    left: set[type] = set()
    try:
        while True:
            writer = Writer(graph, root, STYLES[style], left)
            try:
                return writer.style.file(writer, root)
            except Unwritable as error:
                if not partial or not (more := leavable(graph, error, left)):
                    raise
                left |= {more}
    except (NotImplementedError, GuardOnDataDependentSymNode) as error:
        raise Unsupported(
            f"{type(module).__name__} in Flax source: {_first(error)}",
            where=(isinstance(error, Unwritable) and error.line()) or "",
            why="no rule writes this in terms of jax and flax",
            do="change that line, or pass partial=True to leave its submodule a call into tojax",
        ) from error


def _first(error: Exception) -> str:
    """What is wrong, in a line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _check(module: Any, style: str, partial: bool) -> None:
    """Refuses what source() cannot take."""
    if not isinstance(module, torch.nn.Module):
        raise WrongArguments(
            f"a {type(module).__name__} is no torch.nn.Module",
            why="Flax source is written from a module's own Python code and its operators",
            do="give the module; for a function, put it into the forward of one",
        )
    if style not in STYLES:
        raise WrongArguments(
            f"style={style!r}",
            why="source code is written in Flax's nnx or Linen",
            do='pass style="nnx" or style="linen"',
        )
    if partial and style != "nnx":
        raise WrongArguments(
            'partial=True with style="linen"',
            why="a part that stays in PyTorch is an nnx module",
            do='pass style="nnx"',
        )
