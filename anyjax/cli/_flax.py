"""``anyjax flax``: readable Flax source of a PyTorch module, checked beside it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from anyjax.cli import _import, _shown, sources
from anyjax.cli._codes import ExitCode
from anyjax.cli.sources import Request
from anyjax.cli.writing import Flax

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-3  # of the largest value: the largest difference by rounding


def flax(options: Flax) -> None:
    """Runs ``anyjax flax``."""
    console = Console(highlight=False, markup=False, stderr=True)
    with _shown.progress("loading"):
        module, args, kwargs = (
            _import.module_and_inputs(options.source, options.input or [])
            if _import.is_path(options.source)
            else _checkpoint(options)
        )
    import anyjax

    check = options.check
    with _shown.progress("writing and checking" if check else "writing"):
        seconds, text = _shown.timed(
            lambda: anyjax.flax.source(module, *args, style=options.style, check=check, **kwargs)
        )
    output = options.output
    lines = sum(bool(line.strip()) for line in text.splitlines())
    about = {"model": type(module).__name__, "style": options.style, "lines": lines}
    about |= {"seconds": seconds, "checked": check}
    if output == "-":
        return _shown.as_json(about | {"source": text}) if options.json else print(text, end="")
    Path(output).write_text(text, encoding="utf-8")
    about |= {"file": output}
    if check:
        with _shown.progress("comparing with torch"):
            example = _example(module, Path(output), args, kwargs)
            error = _difference(module, Path(output), example)
        about |= {"example": str(example), "difference": error, "agree": error <= TOLERANCE}
    if options.json:
        _shown.as_json(about)
    else:
        _show(console, about)
    if check and not error <= TOLERANCE:
        sys.exit(ExitCode.DISAGREE)
    return None


def _show(console: Console, about: dict[str, Any]) -> None:
    """Prints where the file is, and how it compares with torch."""
    file = about["file"]
    console.print(f"{file}: {about['lines']} lines of {about['model']} in {about['seconds']:.1f} s")
    if not about["checked"]:
        console.print("not compared with torch: --check does that")
        return
    console.print(
        f"outputs differ from torch's by {about['difference']:.1e} of their largest value"
    )
    console.print(f"again: python {file} WEIGHTS {about['example']}", style="dim")


def _checkpoint(options: Flax) -> tuple[torch.nn.Module, tuple, dict[str, Any]]:
    """Returns a checkpoint's module and inputs of two rows, the second one padded."""
    source = sources.find(options, ("hf",))
    opened = source.opened(Request.of(options, rows=2, cache=False))
    import torch

    arrays = dict(opened.kwargs)
    if "attention_mask" in arrays:
        arrays["attention_mask"][1, -3:] = 0
    tensor = lambda x: torch.from_numpy(x) if hasattr(x, "shape") else x
    return opened.model.to_torch(), (), {k: tensor(x) for k, x in arrays.items()}


def _example(module: torch.nn.Module, output: Path, args: tuple, kwargs: dict) -> Path:
    """Writes the inputs and torch's outputs beside the file, which checks itself with them."""
    import numpy as np
    import torch

    from anyjax.flax.codegen.python.templates import variable

    with torch.no_grad():
        want = _leaves(module.eval()(*args, **kwargs))
    arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    arguments = arguments | arguments.pop("kwargs", {})
    tensors = {k: v for k, v in arguments.items() if isinstance(v, torch.Tensor)}
    arrays = {variable(k): v.numpy() for k, v in tensors.items()}
    arrays |= {f"output_{i}": x for i, x in enumerate(want)}
    np.savez(output.with_suffix(".npz"), **arrays)
    return output.with_suffix(".npz")


def _difference(module: torch.nn.Module, file: Path, example: Path) -> float:
    """Returns the largest difference of any output, relative to its largest value."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    return written.check({k: v.numpy() for k, v in module.state_dict().items()}, example)


def _leaves(value: object) -> list[Any]:
    """Returns the arrays of floats in a result, in order."""
    import numpy as np

    if hasattr(value, "items"):
        value = [x for _, x in value.items()]
    if isinstance(value, (list, tuple)):
        return [x for element in value for x in _leaves(element)]
    array = np.asarray(value) if value is not None else None
    return [array] if array is not None and array.dtype.kind == "f" else []
