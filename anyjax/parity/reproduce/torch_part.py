"""A folder that reproduces a fault: the smallest operator or module, its tensors, a script."""

from __future__ import annotations

import copy
import os
import re
from typing import cast

import torch
from safetensors.torch import save_file

from anyjax.compare.judge import Comparison
from anyjax.compare.recorders.torch_operators import Operator
from anyjax.compare.sides.torch_side import TorchSide
from anyjax.errors import Unsupported
from anyjax.model import Model
from anyjax.parity.operators import compare_operator
from anyjax.parity.reproduce.scripts import MODULE, OPERATOR, SCRIPT
from anyjax.saved.folder import whole
from anyjax.torch.core import interop
from anyjax.torch.source import TorchSource


def write_operator(folder: str | os.PathLike[str], operator: Operator, title: str) -> None:
    """Writes an operator, its tensors and a script that compares the two sides; see ``whole``."""
    names = [f"x{i}" for i in range(len(operator.tensors))]
    source = operator.source()
    assert source is not None, "callers ask before"
    with whole(folder, SCRIPT) as scratch:
        tensors = {k: x.contiguous().clone() for k, x in zip(names, operator.tensors)}
        save_file(tensors, scratch / "tensors.safetensors")
        fills = {"title": title, "names": ", ".join(names), "source": source, "keys": repr(names)}
        (scratch / SCRIPT).write_text(OPERATOR.format(**fills))


def write_module(
    folder: str | os.PathLike[str], model: Model, side: TorchSide, path: str, title: str
) -> None:
    """Writes a module of both sides, its inputs and a script; see ``whole``.

    Raises:
      Unsupported: the module cannot be pickled.
    """
    converted = _converted(model, path)
    with whole(folder, SCRIPT) as scratch:
        try:
            torch.save(converted, scratch / "converted.pt")
            torch.save(side.module.get_submodule(path), scratch / "reference.pt")
            torch.save(side.arguments(path), scratch / "inputs.pt")
        except (AttributeError, TypeError, NotImplementedError) as error:
            raise Unsupported(
                f"{path or 'the model'} cannot be written",
                why=f"pickle: {error}",
                do="define the class in a module, not inside of a function",
            ) from error
        (scratch / SCRIPT).write_text(MODULE.format(title=title))


def reproduce(
    folder: str | os.PathLike[str], model: Model, side: TorchSide, fault: Comparison
) -> str:
    """Writes the first operator of a module that is at fault itself, else the module; returns its
    path.
    """
    path = fault.path.partition("#")[0]
    for operator in side.operators(f"^{re.escape(path)}$"):
        comparison = compare_operator(operator)
        if comparison is not None and comparison.fault and operator.source() is not None:
            write_operator(folder, operator, f"{operator.name}: {comparison.fault}")
            return operator.path
    write_module(folder, model, side, path, f"{path or 'the model'}: {fault.fault}")
    return path or "the model"


def _converted(model: Model, path: str) -> torch.nn.Module:
    """Returns a copy of a submodule as it was converted, with the model's weights."""
    source = cast(TorchSource, model.source)
    if any(x.is_meta for x in source.code.parameters()):  # of a checkpoint: a new module
        return model.to_torch().get_submodule(path)
    converted = copy.deepcopy(source.code.get_submodule(path))
    prefix = f"{path}." if path else ""
    weights = {
        k.removeprefix(prefix): interop.to_torch(x)
        for k, x in {**model.params, **model.state}.items()
        if k.startswith(prefix)
    }
    converted.load_state_dict(weights, strict=False)
    return converted
