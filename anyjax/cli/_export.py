"""``anyjax export``: a checkpoint as an artifact that runs without its framework, checked."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from anyjax.cli import _shown
from anyjax.cli._codes import ExitCode
from anyjax.cli.options import Export
from anyjax.errors import BadCheckpoint, WrongValue
from anyjax.typing import PyTree
from anyjax.units import duration, size

if TYPE_CHECKING:
    from anyjax.model import Model

FORMATS = ("jax", "savedmodel", "onnx")
SYMBOLIC = "symbolic"
ROWS, LENGTH = 2, 16  # of the example, if a size is symbolic or not given


def export(options: Export) -> None:
    """Runs ``anyjax export``."""
    status, out = Console(stderr=True, highlight=False, soft_wrap=True), Path(options.out)
    _check(options)
    if out.exists() and (out.is_file() or any(out.iterdir())):
        status.print(f"{out} is there and is replaced", markup=False)
    with _shown.progress("loading") as bar:
        load, (model, args, kwargs, shapes) = _shown.timed(lambda: _loaded(options))
        bar.update(f"writing {options.format}")
        write, _ = _shown.timed(lambda: _write(model, options, args, kwargs, shapes))
        bar.update("comparing with the model")
        agreement = _agreement(model, options, args, kwargs)
    about = {
        "model": model.source.name,
        "from": options.source,
        "format": options.format,
        "inputs": _shapes(model, args, kwargs, shapes),
        "seconds": {"load": load, "write": write},
        "files": [{"file": file, "bytes": nbytes} for file, nbytes in _sizes(out)],
        **agreement,
        "load": _how(options),
    }
    if options.json:
        _shown.as_json(about)
    else:
        _show(about)
    if not agreement["agree"]:
        status.print("error: the artifact and the model disagree")
        sys.exit(ExitCode.DISAGREE)


def _show(about: dict[str, Any]) -> None:
    """Prints what was written, and how it compares with the model."""
    console, seconds = _shown.console(), about["seconds"]
    inputs = ", ".join(f"{k} {v}" for k, v in about["inputs"].items())
    lines = [
        f"{about['model']} from {about['from']}, called with {inputs}",
        f"loaded in {duration(seconds['load'])}, written in {duration(seconds['write'])}",
        *(f"  {x['file']:<40} {size(x['bytes']):>10}" for x in about["files"]),
    ]
    if about["difference"] is None:
        lines.append("its outputs were compared with the model's")
    else:
        difference = f"{about['difference']:.1e} of the largest value"
        lines.append(f"largest difference to the model: {difference}")
    if (same := about["same_tokens"]) is not None:
        lines.append(f"generated tokens: {'the same' if same else 'others'}")
    console.print("\n".join([*lines, f"load it: {about['load']}"]), markup=False)


def _check(options: Export) -> None:
    """Raises WrongValue or WrongArguments for wrong options, before anything is loaded."""
    from anyjax.export import savedmodel
    from anyjax.saved.folder import check_free, check_target
    from anyjax.saved.programs import check_platforms

    if options.format not in FORMATS:
        raise WrongValue(
            f"--format {options.format}",
            why=f"formats are {', '.join(FORMATS)}",
            do="give one of these",
        )
    for name in ("batch", "length"):
        value = getattr(options, name)
        if value != SYMBOLIC and not (value.isdigit() and int(value)):
            raise WrongValue(
                f"--{name} {value}", why="it is a size", do=f"give a number, or {SYMBOLIC}"
            )
    check_platforms(_platforms(options))
    if options.generate and options.format != "jax":
        raise WrongValue(
            f"--generate with --format {options.format}",
            why="a decoding loop is a program of JAX",
            do="leave one of the two out",
        )
    if options.sample and not options.generate:
        raise WrongValue(
            "--sample without --generate",
            why="it says how the decoding loop picks tokens",
            do="give both: --generate 32 --sample",
        )
    if options.generate and options.length == SYMBOLIC:
        raise WrongValue(
            f"--generate with --length {SYMBOLIC}",
            why="the cache is made for a greatest length",
            do="give that as a number; shorter prompts are served as well",
        )

    if options.format == "jax":
        check_free(Path(options.out), "model.json")
        check_target(options.out)
    elif options.format == "savedmodel":
        check_free(Path(options.out), "saved_model.pb")
        savedmodel.check_target(options.out)


def _loaded(options: Export) -> tuple[Any, tuple, dict[str, Any], dict[str, str]]:
    """Returns (model, args and kwargs of an example, shapes by name)."""
    from anyjax.frontends import frontend_of

    load = _tensorflow if frontend_of(options.source) == "tensorflow" else _checkpoint
    model, args, kwargs, shapes = load(options)
    from anyjax import transforms

    if options.quantize:  # first: rolled weights share no scales
        model = transforms.quantize(model, options.quantize)
    if options.roll:
        model = transforms.roll(model, *args, **kwargs)
    return model, args, kwargs, shapes


def _checkpoint(options: Export) -> tuple[Any, tuple, dict[str, Any], dict[str, str]]:
    from anyjax.cli import _source
    from anyjax.hf.loading import inputs

    model = _source.model_of(
        _source.resolve(options.source, allow_pickle=options.allow_pickle),
        dtype=options.dtype,
        task=options.task,
        allow_pickle=options.allow_pickle,
    )
    module: Any = model.source.module
    length = LENGTH if options.length == SYMBOLIC else int(options.length)
    example = inputs.example(module, length=length)
    example = {k: np.repeat(v, _rows(options), 0) for k, v in example.items()}
    kwargs: dict[str, Any] = {k: model.source.as_array(v) for k, v in example.items()}
    if "use_cache" in inspect.signature(module.forward).parameters:
        kwargs["use_cache"] = False  # a cache is no part of the exported forward pass
    text = {"input_ids", "attention_mask"}
    return model, (), kwargs, _symbolic(options, example, text)


def _tensorflow(options: Export) -> tuple[Any, tuple, dict[str, Any], dict[str, str]]:
    import anyjax
    from anyjax import trees
    from anyjax.cli._run_tensorflow import examples
    from anyjax.tensorflow import savedmodel

    checkpoint_only = {
        "length": options.length != str(LENGTH),
        "dtype": options.dtype,
        "task": options.task,
        "allow-pickle": options.allow_pickle,
    }
    if wrong := [name for name, is_set in checkpoint_only.items() if is_set]:
        raise WrongValue(
            f"--{wrong[0]} for a TensorFlow model",
            why="its file says what it is called with, and it is of checkpoints alone",
            do="leave it out",
        )
    loaded = savedmodel.load(options.source)
    function = savedmodel.choose(loaded, None) if hasattr(loaded, "signatures") else loaded
    args, kwargs = examples(savedmodel.call_of(function), _rows(options))
    model = anyjax.from_tensorflow(function, *args, **kwargs)
    arrays = zip(trees.names(args, kwargs, model.source.positional), _leaves((args, kwargs)))
    return model, args, kwargs, _symbolic(options, dict(arrays), set())


def _leaves(tree: PyTree) -> list[Any]:
    import jax

    return jax.tree.leaves(tree)


def _platforms(options: Export) -> tuple[str, ...]:
    return tuple(x.strip() for x in options.platforms.split(","))


def _rows(options: Export) -> int:
    return ROWS if options.batch == SYMBOLIC else int(options.batch)


def _symbolic(options: Export, arrays: dict[str, PyTree], text: set[str]) -> dict[str, str]:
    """Returns symbolic shapes by argument, for ``model.save``."""
    batch = "batch" if options.batch == SYMBOLIC else "_"
    length = "length" if options.length == SYMBOLIC else "_"
    if (batch, length) == ("_", "_"):
        return {}
    shapes = {k: f"{batch}, {length}" if k in text else f"{batch}, ..." for k in arrays}
    return {k: v for k, v in shapes.items() if v != "_, ..."}


def _write(model: Model, options: Export, args: tuple, kwargs: dict, shapes: dict) -> None:
    from anyjax.export import to_onnx, to_savedmodel

    platforms = _platforms(options)
    if options.format == "onnx":
        to_onnx(model, options.out, *args, shapes=shapes, **kwargs)
    elif options.format == "savedmodel":
        to_savedmodel(model, options.out, *args, shapes=shapes, platforms=platforms, **kwargs)
    else:
        loop = _loop(options) if options.generate else None
        model.save(
            options.out,
            *args,
            shapes=shapes,
            platforms=platforms,
            generate=loop,
            executables=options.chips.split(",") if options.chips else options.executables,
            **kwargs,
        )
        if loop:
            _add_tokenizer(options.source, Path(options.out))


def _add_tokenizer(source: str, out: Path) -> None:
    """Adds the checkpoint's tokenizer, if there is one, for ``anyjax generate``."""
    from anyjax.cli import _source
    from anyjax.cli._generate import tokenizer_of
    from anyjax.cli._saved import TOKENIZER
    from anyjax.saved.folder import add

    try:
        tokenizer = tokenizer_of(_source.resolve(source, need_weights=False))
    except BadCheckpoint:
        return
    add(out, TOKENIZER, tokenizer.save_pretrained)


def _loop(options: Export) -> dict[str, Any]:
    return {"max_new_tokens": options.generate, "do_sample": options.sample}


def _compared(
    model: Model, options: Export, args: tuple, kwargs: dict
) -> tuple[float, bool | None]:
    """Returns (the largest difference of an output, whether the generated tokens are the same)."""
    import jax

    import anyjax
    from anyjax.export.flat import call_of, difference

    back = anyjax.load(options.out)
    want, got = (
        call_of(m, args, kwargs, None, ()).want([x for x in _leaves((args, kwargs)) if _array(x)])
        for m in (model, back)
    )
    if not options.generate:
        return difference(want, got), None
    ids = kwargs["input_ids"]
    key = {"rng": jax.random.key(0)} if options.sample else {}
    text = lambda m: np.asarray(anyjax.generate(m, ids, **_loop(options), **key))
    return difference(want, got), np.array_equal(text(model), text(back))


def _agreement(model: Model, options: Export, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Returns the differences to the model by name; TensorFlow's and ONNX's files were compared
    when they were written.
    """
    if options.format != "jax":
        return {"difference": None, "same_tokens": None, "agree": True}
    from anyjax.export.flat import rounding

    difference, same_tokens = _compared(model, options, args, kwargs)
    agree = difference <= rounding(model) and same_tokens is not False
    return {"difference": difference, "same_tokens": same_tokens, "agree": agree}


def _array(x: object) -> bool:
    return hasattr(x, "shape")


def _shapes(model: Model, args: tuple, kwargs: dict, shapes: dict[str, str]) -> dict[str, str]:
    from anyjax.saved.calls import describe_call
    from anyjax.saved.dimensions import symbolic
    from anyjax.trees import names

    args, kwargs, _ = symbolic(model.source, args, kwargs, shapes, ())
    return describe_call(_leaves((args, kwargs)), names(args, kwargs, model.source.positional))


def _sizes(out: Path) -> list[tuple[str, int]]:
    files = [out] if out.is_file() else sorted(x for x in out.rglob("*") if x.is_file())
    weights = out.with_name(f"{out.name}.data")
    files += [weights] if weights.is_file() and out.is_file() else []
    return [(str(x.relative_to(out.parent)), x.stat().st_size) for x in files]


def _how(options: Export) -> str:
    """Returns a line of Python that loads the artifact."""
    where = options.out
    if options.format == "onnx":
        return f"session = onnxruntime.InferenceSession({where!r})"
    if options.format == "savedmodel":
        return (
            f"call = tf.saved_model.load({where!r}).signatures['serving_default'], "
            f"or anyjax.from_tensorflow({where!r})"
        )
    line = f"model = anyjax.load({where!r})"
    if options.generate:
        key = ", rng=jax.random.key(0)" if options.sample else ""
        line += f"; ids = anyjax.generate(model, input_ids{key})"
    return line
