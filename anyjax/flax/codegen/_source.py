"""``anyjax.flax.source``."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from anyjax.errors import Unsupported, WrongArguments
from anyjax.flax.codegen.author.source_lines import line_of
from anyjax.flax.codegen.check.verify import verify
from anyjax.flax.codegen.graph.graph import Graph, export_graph
from anyjax.flax.codegen.graph.spelling import Spellings, in_spelling, renamed, spellings
from anyjax.flax.codegen.graph.submodule_tree import block_tree
from anyjax.flax.codegen.graph.widen_example import widen
from anyjax.flax.codegen.module.class_code import ClassCode
from anyjax.flax.codegen.module.operators import Unwritable
from anyjax.flax.codegen.module.torch_parts import type_to_leave
from anyjax.flax.codegen.module.writer import Writer
from anyjax.flax.codegen.style.linen import Linen
from anyjax.flax.codegen.style.nnx import Nnx

STYLES: dict[str, Nnx | Linen] = {"nnx": Nnx(), "linen": Linen()}


def source(
    module: torch.nn.Module,
    *args: Any,
    style: str = "nnx",
    partial: bool = False,
    check: bool = True,
    **kwargs: Any,
) -> str:
    """Writes a PyTorch module as readable Flax source code.

    One class for each class of the module, with its name, its submodules' names and its author's
    variables; the file imports only jax and flax. Its weights come from PyTorch: in nnx by
    ``load_params(model, weights)``, in Linen as ``variables = load_params(weights)``.
    Run as ``python model.py WEIGHTS EXAMPLE.npz`` it compares itself with outputs of PyTorch's.

    Args:
      module: what to write; it is put into evaluation mode while it is looked at. Dropout and
        BatchNorm are Flax's, which ``model.train()`` and ``model.eval()`` switch, in Linen
        ``deterministic=False``. Attention's rate of dropout is that of a call in training mode;
        what else only training mode does in Python, such as other outputs, is not written, and
        the check refuses it.
      *args: an example of its inputs. A batch or a length of 1 is made 2 where the module
        takes that, and warned of where it does not. Sizes stay symbolic unless the module decides
        something by them. Where its Python code does, the file has the example's way and refuses
        other sizes; a size of 1 takes the way of larger ones.
      **kwargs: the same, by name.
      style: "nnx" or "linen".
      partial: leave the innermost submodules that cannot be written in PyTorch, in nnx: the file
        then imports anyjax, and ``connect(model, module)`` gives these parts their modules.
      check: run the file beside the module before it is returned: values and gradients, those of
        parameters and of inputs of floats, for the example; values for another batch, and another
        length where there is one; values and running statistics of training mode. Not compared is
        what is drawn at random, as all of training mode with dropout, and what torch refuses. This
        takes some copies of the weights and about as long as the writing.

    Returns:
      The text of a Python file.

    Raises:
      WrongArguments: this is no module, it fails on this example, or the style is unknown.
      Unsupported: torch.export refuses the module, or one of its operators cannot be written; the
        error names its line.
      WrongSource: the file does not do what the module does; the error names the submodule that
        differs first, or says that training mode does something else.

    Example:
      >>> import torch
      >>> text = anyjax.flax.source(torch.nn.Linear(3, 2), torch.ones(4, 3))
      >>> print(text[text.index("class") : text.index("def load_params")].strip())
      class Linear(nnx.Module):
          def __init__(self, in_features=3, out_features=2, *, rngs: nnx.Rngs):
      ...
    """
    _check(module, style, partial)
    if "use_cache" in inspect.signature(module.forward).parameters:
        kwargs.setdefault("use_cache", False)  # what is kept between calls is no part of a forward
    training = {submodule: submodule.training for submodule in module.modules()}
    try:
        args, kwargs = widen(module.eval(), args, kwargs)
        graph = export_graph(module, args, kwargs)
        names = spellings(module, STYLES[style].reserved, STYLES[style].loader_name)
        graph = in_spelling(graph, names)
        with renamed(module, names):
            text, code = _written(module, graph, style, partial, names)
        if check:
            inputs = {x.name: name for x, name in zip(code.inputs, code.parameters)}
            verify(text, module, (args, kwargs), graph, inputs)
    finally:
        for submodule, mode in training.items():
            submodule.training = mode
    return text


def _written(
    module: torch.nn.Module, graph: Graph, style: str, partial: bool, names: Spellings
) -> tuple[str, ClassCode]:
    """Returns the file, and the outermost class in it."""
    root = block_tree(graph, module)
    torch_types: set[type] = set()
    try:
        while True:
            writer = Writer(graph, root, STYLES[style], torch_types, names)
            try:
                return STYLES[style].file(writer, root), writer.code_of(root)
            except Unwritable as error:
                submodule_type = type_to_leave(graph, error.blocks, torch_types)
                if not partial or submodule_type is None:
                    raise
                torch_types.add(submodule_type)
    except (NotImplementedError, GuardOnDataDependentSymNode) as error:
        raise Unsupported(
            f"{type(module).__name__} in Flax source: {_first(error)}",
            where=line_of(error.node) if isinstance(error, Unwritable) else "",
            why="no rule writes this in terms of jax and flax",
            do="change that line, or pass partial=True to leave its submodule a call into anyjax",
        ) from error


def _first(error: Exception) -> str:
    """Returns the first line of an error."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _check(module: torch.nn.Module, style: str, partial: bool) -> None:
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
