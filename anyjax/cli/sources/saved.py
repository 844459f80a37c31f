"""A folder that ``model.save`` or ``anyjax export`` wrote; JAX alone runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from anyjax.cli import _shown
from anyjax.cli.sources import SAVED, Contents, Opened, Request, drawn, listed, since_start
from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.typing import PyTree
from anyjax.units import size

TOKENIZER = "tokenizer"  # the name of its subfolder


def opened(request: Request) -> Opened:
    """Loads a model with an example of the first call that it was saved with."""
    about = about_of(request.source)
    request.report("loading")
    import anyjax

    imports = since_start()
    load, model = _shown.timed(lambda: anyjax.load(request.source))
    kwargs = _example(about["calls"][0], request.rows) if request.peer else {}
    return Opened(
        model=model, kwargs=kwargs, place=request.source,
        seconds={"imports": imports, "load": load},
    )  # fmt: skip


def about_of(source: str) -> dict[str, Any]:
    """Reads ``model.json``.

    Raises:
      BadCheckpoint: ``model.save`` did not write it.
    """
    from anyjax.saved.metadata import read_about

    file = Path(source).expanduser() / SAVED
    try:
        about = read_about(file)
        return {k: about[k] for k in ("name", "framework", "jax", "platforms", "calls", "programs")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(
            f"{SAVED} is not one of model.save",
            where=str(file),
            why=f"{type(error).__name__}: {error}",
            do="save the model again: anyjax export FOLDER_OR_ID -o OUT",
        ) from None


def tokenizer_folder(source: str, option: str | None) -> Path:
    """Returns the folder of the tokenizer.

    Raises:
      BadCheckpoint: there is none.
    """
    folder = Path(source).expanduser()
    path = Path(option).expanduser() if option else folder / TOKENIZER
    if not path.is_dir():
        raise BadCheckpoint(
            f"{folder.name} has no tokenizer",
            where=str(path.absolute()),
            why="model.save keeps programs and weights; anyjax export --generate a tokenizer, too",
            do="name the folder of one: --tokenizer FOLDER",
        )
    return path


def contents(request: Request) -> Contents:
    """Shows calls, loops and weights, without loading programs."""
    from anyjax.hf.loading.find.checkpoint import stored_in
    from anyjax.saved.calls import shapes_of

    about, folder = about_of(request.source), Path(request.source).expanduser()
    files = [folder / f"{k}.safetensors" for k in ("params", "state")]
    tensors = {k: x for file in files for k, x in stored_in(file).items()}
    weights = {
        k: {"dtype": x.dtype, "shape": [*x.shape], "bytes": x.size} for k, x in tensors.items()
    }
    calls = [shapes_of(call["inputs"]) for call in about["calls"]]
    loops = {k: x.get("options", {}) for k, x in about["programs"].items()}
    rows = [(k, x.dtype, str([*x.shape]), size(x.size)) for k, x in tensors.items()]
    return Contents(
        {
            "model": about["name"], "framework": about["framework"], "folder": str(folder),
            "jax": about["jax"], "platforms": about["platforms"], "calls": calls,
            "programs": loops, "weights": weights,
        },
        [
            f"{about['name']} from {about['framework']}, saved in {folder}",
            f"runs on {', '.join(about['platforms'])}; saved with JAX {about['jax']}",
            *(f"call: {listed(call)}" for call in calls),
            *(f"{name}: {listed(options) or 'the defaults'}" for name, options in loops.items()),
            _shown.table(["weight", "dtype", "shape", "size"], rows, right=(3,)),
            f"{len(rows)} arrays, {size(sum(x.size for x in tensors.values()))}",
        ],
    )  # fmt: skip


def _example(call: dict[str, Any], rows: int) -> dict[str, PyTree]:
    """Draws the inputs of a saved call, and its key."""
    import jax

    rng, inputs = np.random.default_rng(0), {}
    for name, described in call["inputs"].items():
        spec = re.fullmatch(r"(\w+)\[(.*)\]", described) if isinstance(described, str) else None
        if not name.isidentifier():
            raise Unsupported(
                f"example inputs for {name}",
                why="the saved call takes a tree of arrays",
                do="call it from Python: anyjax.load(folder)(...)",
            )
        if spec is None:
            is_layout = isinstance(described, dict)  # its values are part of the program
            inputs[name] = np.asarray(described["values"]) if is_layout else described
            continue
        sizes = [x.strip() for x in spec[2].split(",") if x.strip()]
        shape = [int(x) if x.isdigit() else max(rows, 2) for x in sizes]
        inputs[name] = jax.numpy.asarray(drawn(rng, shape, jax.numpy.dtype(spec[1])))
    kind = call["rng"]
    return inputs | ({"rng": jax.random.key(0, impl=kind)} if kind else {})
