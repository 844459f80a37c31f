"""The verbs on a folder that ``model.save`` or ``tojax export`` wrote; JAX alone runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from tojax.cli import _generate, _shown
from tojax.cli._source import SAVED
from tojax.errors import BadCheckpoint, Unsupported, WrongValue

TOKENIZER = "tokenizer"  # the folder inside


def generate(source: str, asked: _generate.Options) -> None:
    """``tojax generate`` of a saved loop: the text at once, one program has written it."""
    about = about_of(source)
    told = about["programs"].get("generate", {})
    if asked.adapter is not None or asked.dtype is not None:
        raise WrongValue(
            "--adapter or --dtype for a saved model",
            where=source,
            why="its weights are in its programs' own form",
            do="save it again: tojax export FOLDER_OR_ID -o OUT --generate 32",
        )
    folder = _tokenizer(Path(source).expanduser(), asked.tokenizer)
    prompt = _generate.prompt_of(asked.prompt)
    with _generate.console.status("loading"):
        import tojax

        tokenizer = _generate.load_tokenizer(folder)
        model = tojax.load(source)
    ids: Any = _generate.encode(tokenizer, prompt)
    most = told.get("new_tokens")
    options: dict[str, Any] = asked.drawn()
    if most is not None:
        if most < asked.max_new_tokens:
            said = f"the loop was saved for {most} new tokens, not {asked.max_new_tokens}"
            _generate.console.print(said)
        options["max_new_tokens"] = min(asked.max_new_tokens, most)
    if told.get("samples"):
        import jax

        options["rng"] = jax.random.key(asked.seed)
    out: Any = tojax.generate(model, ids, **options)
    print(tokenizer.decode(np.asarray(out)[0].tolist(), skip_special_tokens=True))


def about_of(source: str) -> dict[str, Any]:
    """What ``model.json`` says.

    Raises:
      BadCheckpoint: it is none that ``model.save`` wrote.
    """
    file = Path(source).expanduser() / SAVED
    try:
        about = json.loads(file.read_text())
        return {k: about[k] for k in ("name", "framework", "jax", "platforms", "calls", "programs")}
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(
            f"{SAVED} is not one of model.save",
            where=str(file),
            why=f"{type(error).__name__}: {error}",
            do="save the model again: tojax export FOLDER_OR_ID -o OUT",
        ) from None


def _tokenizer(folder: Path, other: str | None) -> Path:
    """Where the tokenizer is."""
    found = Path(other).expanduser() if other else folder / TOKENIZER
    if not found.is_dir():
        raise BadCheckpoint(
            f"{folder.name} has no tokenizer",
            where=str(found.absolute()),
            why="model.save keeps programs and weights; tojax export --generate the tokenizer, too",
            do="name the folder of one: --tokenizer FOLDER",
        )
    return found


def inspect(source: str, as_json: bool) -> None:
    """``tojax inspect``: calls, loops and weights; no program is read."""
    from tojax.hf.loading.checkpoint import stored_in

    about, folder = about_of(source), Path(source).expanduser()
    tensors = [
        x for k in ("params", "state") for x in stored_in(folder / f"{k}.safetensors").items()
    ]
    weights: dict[str, dict[str, Any]]
    weights = {k: {"dtype": v.dtype, "shape": list(v.shape), "bytes": v.size} for k, v in tensors}
    calls = [call["inputs"] for call in about["calls"]]
    loops = {k: v.get("options", {}) for k, v in about["programs"].items()}
    told = {"model": about["name"], "framework": about["framework"], "folder": str(folder)}
    told |= {"jax": about["jax"], "platforms": about["platforms"], "calls": calls}
    told |= {"programs": loops, "weights": weights}
    if as_json:
        _shown.as_json(told)
        return
    console = _shown.console()
    console.print(f"[bold]{about['name']}[/bold] from {about['framework']}, saved in {folder}")
    console.print(f"runs on {', '.join(about['platforms'])}; saved with JAX {about['jax']}")
    for call in calls:
        console.print(f"call: {_inputs(call)}", markup=False)
    for name, options in loops.items():
        console.print(f"{name}: {_inputs(options) or 'the defaults'}", markup=False)
    rows = [(k, v["dtype"], str(v["shape"]), f"{v['bytes'] / 1e6:.3f}") for k, v in weights.items()]
    console.print(_shown.table(["weight", "dtype", "shape", "MB"], rows, right=(3,)))
    total = sum(v["bytes"] for v in weights.values())
    console.print(f"{len(weights)} arrays, {total / 1e6:.2f} MB")


def _inputs(call: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in call.items())


def run(source: str, batch: int, as_json: bool) -> None:
    """``tojax run``: the first saved call, timed; there is no other framework to compare with."""
    about = about_of(source)
    with _generate.console.status("loading"):
        import jax

        import tojax

        load, model = _shown.timed(lambda: tojax.load(source))
        kwargs, key = _example(about["calls"][0], batch)
        call = lambda: jax.block_until_ready(model(**kwargs, **key))
        first, out = _shown.timed(call)
        following = min(_shown.timed(call)[0] for _ in range(5))
    arrays = {k: x for k, x in kwargs.items() if hasattr(x, "shape")}
    inputs = {k: f"{x.dtype}{list(x.shape)}" for k, x in arrays.items()}
    outputs = [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(out)]
    times = {"load": load, "first run": first, "following runs": following}
    if as_json:
        told = {"model": about["name"], "folder": source, "inputs": inputs, "outputs": outputs}
        _shown.as_json(told | {"seconds": times})
        return
    console = _shown.console()
    console.print(f"[bold]{about['name']}[/bold] from {source}, saved: nothing to compare it with")
    console.print(f"inputs: {_inputs(inputs)}; outputs: {', '.join(outputs)}", markup=False)
    rows = [(name, _shown.duration(x)) for name, x in times.items()]
    console.print(_shown.table(["step", "JAX"], rows, right=(1,)))


def _example(call: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(inputs of a saved call, drawn at random; its key)"""
    import jax

    rng, made = np.random.default_rng(0), {}
    for name, told in call["inputs"].items():
        spec = re.fullmatch(r"(\w+)\[(.*)\]", told) if isinstance(told, str) else None
        if not name.isidentifier():
            raise Unsupported(
                f"example inputs for {name}",
                why="the saved call takes a tree of arrays",
                do="call it from Python: tojax.load(folder)(...)",
            )
        if spec is None:
            made[name] = told
            continue
        parts = [x.strip() for x in spec[2].split(",") if x.strip()]
        shape = [int(x) if x.isdigit() else max(batch, 2) for x in parts]
        dtype = jax.numpy.dtype(spec[1])
        integers = dtype.kind in "iub"
        values = rng.integers(0, 2, shape) if integers else rng.standard_normal(shape)
        made[name] = jax.numpy.asarray(values, dtype)
    kind = call["rng"]
    return made, {"rng": jax.random.key(0, impl=kind)} if kind else {}
