"""The verbs on a folder that ``model.save`` or ``anyjax export`` wrote; JAX alone runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from anyjax.cli import _generate, _shown
from anyjax.cli._source import SAVED
from anyjax.cli._stages import Stages
from anyjax.cli._tokenizer import fast_tokenizer
from anyjax.cli.options import Generate
from anyjax.errors import BadCheckpoint, Unsupported, WrongValue
from anyjax.units import duration, size

TOKENIZER = "tokenizer"  # the name of its subfolder


def generate(options: Generate, start: float) -> None:
    """Runs ``anyjax generate`` for a saved loop; the text is printed at the end."""
    stages = Stages(start)
    source = options.source
    about = about_of(source)
    loop = about["programs"].get("generate", {})
    if options.adapter is not None or options.dtype is not None:
        raise WrongValue(
            "--adapter or --dtype for a saved model",
            where=source,
            why="its weights are in its programs' own form",
            do="save it again: anyjax export FOLDER_OR_ID -o OUT --generate 32",
        )
    folder = _tokenizer(Path(source).expanduser(), options.tokenizer)
    prompt = _generate.prompt_of(options.prompt)
    with _shown.progress("loading"):
        import anyjax.model
        from anyjax.hf.generation import saved_loop  # noqa: F401  (and JAX)

        stages.end("imports")
        written_here = options.tokenizer is None  # by transformers, for `anyjax export`
        tokenizer = (fast_tokenizer(folder) if written_here else None) or _generate.load_tokenizer(
            folder
        )
        stages.end("tokenizer")
        model = anyjax.load(source)
        stages.end("weights and programs")
    stages.listen()
    ids: Any = _generate.encode(tokenizer, prompt)
    maximum = loop.get("new_tokens")
    settings: dict[str, Any] = options.sampling()
    if maximum is not None:
        if maximum < options.max_new_tokens:
            note = f"the loop was saved for {maximum} new tokens, not {options.max_new_tokens}"
            _generate.console.print(note)
        settings["max_new_tokens"] = min(options.max_new_tokens, maximum)
    if loop.get("samples"):
        import jax

        settings["rng"] = jax.random.key(options.seed)
    with _shown.progress("generating"):
        out: Any = anyjax.generate(model, ids, **settings)
    stages.end("tokens")
    _generate.report(options, about["name"], tokenizer, ids, np.asarray(out), stages)
    if not options.json:
        print(tokenizer.decode(np.asarray(out)[0].tolist(), skip_special_tokens=True))


def about_of(source: str) -> dict[str, Any]:
    """Reads ``model.json``.

    Raises:
      BadCheckpoint: ``model.save`` did not write it.
    """
    from anyjax.saved.about import read_about

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


def _tokenizer(folder: Path, option: str | None) -> Path:
    """Returns the folder of the tokenizer.

    Raises:
      BadCheckpoint: there is none.
    """
    path = Path(option).expanduser() if option else folder / TOKENIZER
    if not path.is_dir():
        raise BadCheckpoint(
            f"{folder.name} has no tokenizer",
            where=str(path.absolute()),
            why="model.save keeps programs and weights; anyjax export --generate a tokenizer, too",
            do="name the folder of one: --tokenizer FOLDER",
        )
    return path


def inspect(source: str, as_json: bool) -> None:
    """Runs ``anyjax inspect`` for a saved model: calls, loops and weights, without its programs."""
    from anyjax.hf.loading.checkpoint import stored_in

    about, folder = about_of(source), Path(source).expanduser()
    tensors = [
        x for k in ("params", "state") for x in stored_in(folder / f"{k}.safetensors").items()
    ]
    weights: dict[str, dict[str, Any]]
    weights = {k: {"dtype": v.dtype, "shape": list(v.shape), "bytes": v.size} for k, v in tensors}
    calls = [call["inputs"] for call in about["calls"]]
    loops = {k: v.get("options", {}) for k, v in about["programs"].items()}
    summary = {"model": about["name"], "framework": about["framework"], "folder": str(folder)}
    summary |= {"jax": about["jax"], "platforms": about["platforms"], "calls": calls}
    summary |= {"programs": loops, "weights": weights}
    if as_json:
        _shown.as_json(summary)
        return
    console = _shown.console()
    console.print(f"[bold]{about['name']}[/bold] from {about['framework']}, saved in {folder}")
    console.print(f"runs on {', '.join(about['platforms'])}; saved with JAX {about['jax']}")
    for call in calls:
        console.print(f"call: {_inputs(call)}", markup=False)
    for name, options in loops.items():
        console.print(f"{name}: {_inputs(options) or 'the defaults'}", markup=False)
    rows = [(k, v["dtype"], str(v["shape"]), size(v["bytes"])) for k, v in weights.items()]
    console.print(_shown.table(["weight", "dtype", "shape", "size"], rows, right=(3,)))
    total = sum(v["bytes"] for v in weights.values())
    console.print(f"{len(weights)} arrays, {size(total)}")


def _inputs(call: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in call.items())


def run(source: str, batch: int, as_json: bool) -> None:
    """Runs ``anyjax run`` for a saved model: times the first call, without a comparison."""
    about = about_of(source)
    with _shown.progress("loading"):
        import jax

        import anyjax

        load, model = _shown.timed(lambda: anyjax.load(source))
        kwargs, key = _example(about["calls"][0], batch)
        call = lambda: jax.block_until_ready(model(**kwargs, **key))
        first, out = _shown.timed(call)
        following = min(_shown.timed(call)[0] for _ in range(5))
    arrays = {k: x for k, x in kwargs.items() if hasattr(x, "shape")}
    inputs = {k: f"{x.dtype}{list(x.shape)}" for k, x in arrays.items()}
    outputs = [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(out)]
    times = {"load": load, "first run": first, "following runs": following}
    if as_json:
        summary = {"model": about["name"], "folder": source, "inputs": inputs, "outputs": outputs}
        _shown.as_json(summary | {"seconds": times})
        return
    console = _shown.console()
    console.print(f"[bold]{about['name']}[/bold] from {source}, saved: nothing to compare it with")
    console.print(f"inputs: {_inputs(inputs)}; outputs: {', '.join(outputs)}", markup=False)
    rows = [(name, duration(x)) for name, x in times.items()]
    console.print(_shown.table(["step", "JAX"], rows, right=(1,)))


def _example(call: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (random inputs of a saved call, its key)."""
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
            inputs[name] = described
            continue
        sizes = [x.strip() for x in spec[2].split(",") if x.strip()]
        shape = [int(x) if x.isdigit() else max(batch, 2) for x in sizes]
        dtype = jax.numpy.dtype(spec[1])
        integers = dtype.kind in "iub"
        values = rng.integers(0, 2, shape) if integers else rng.standard_normal(shape)
        inputs[name] = jax.numpy.asarray(values, dtype)
    kind = call["rng"]
    return inputs, {"rng": jax.random.key(0, impl=kind)} if kind else {}
