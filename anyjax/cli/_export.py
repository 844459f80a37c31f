"""``anyjax export``: a checkpoint as an artifact that runs without its framework, checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from anyjax.cli import _shown, sources
from anyjax.cli._codes import ExitCode
from anyjax.cli.sources import LENGTH, Opened, Request
from anyjax.cli.writing import Export
from anyjax.errors import BadCheckpoint, WrongValue
from anyjax.typing import PyTree
from anyjax.units import duration, size

if TYPE_CHECKING:
    from anyjax.model import Model

FORMATS = ("jax", "savedmodel", "onnx")
SYMBOLIC = "symbolic"
TEXT = ("input_ids", "attention_mask")
ROWS = 2  # of the example, if their number is symbolic


def export(options: Export) -> None:
    """Runs ``anyjax export``."""
    status, out = Console(stderr=True, highlight=False, soft_wrap=True), Path(options.out)
    _check(options)
    if out.exists() and (out.is_file() or any(out.iterdir())):
        status.print(f"{out} is there and is replaced", markup=False)
    with _shown.progress("loading") as bar:
        load, opened = _shown.timed(lambda: _opened(options, bar.update))
        model, args, kwargs = opened.model, opened.args, opened.kwargs
        shapes = _symbolic(options, opened)
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
    console.print(*lines, f"load it: {about['load']}", sep="\n")


def _check(options: Export) -> None:
    """Raises WrongValue or WrongArguments for wrong options, before anything is loaded."""
    from anyjax.export import savedmodel
    from anyjax.saved.folder import check_free, check_target
    from anyjax.saved.programs import check_platforms

    is_size = lambda x: x == SYMBOLIC or (x.isdigit() and int(x) > 0)
    mistakes = (
        (options.format not in FORMATS, f"--format {options.format}",
         f"formats are {', '.join(FORMATS)}", "give one of these"),
        *((not is_size(x), f"--{name} {x}", "it is a size", f"give a number, or {SYMBOLIC}")
          for name, x in (("batch", options.batch), ("length", options.length))),
        (options.generate and options.format != "jax", f"--generate with --format {options.format}",
         "a decoding loop is a program of JAX", "leave one of the two out"),
        (options.sample and not options.generate, "--sample without --generate",
         "it says how the decoding loop picks tokens", "give both: --generate 32 --sample"),
        (options.generate and options.length == SYMBOLIC, f"--generate with --length {SYMBOLIC}",
         "the cache is made for a greatest length",
         "give that as a number; shorter prompts are served as well"),
    )  # fmt: skip
    for is_wrong, what, why, do in mistakes:
        if is_wrong:
            raise WrongValue(what, why=why, do=do)
    check_platforms(_platforms(options))
    if options.format == "jax":
        check_free(Path(options.out), "model.json")
        check_target(options.out)
    elif options.format == "savedmodel":
        check_free(Path(options.out), "saved_model.pb")
        savedmodel.check_target(options.out)


def _opened(options: Export, report: Callable[[str], None]) -> Opened:
    """Opens the model, quantized and rolled as the options say."""
    source = sources.find(options, ("hf", "tensorflow"))
    rows = ROWS if options.batch == SYMBOLIC else int(options.batch)
    length = LENGTH if options.length == SYMBOLIC else int(options.length)
    example = {"rows": rows, "length": length, "cache": False, "report": report}
    opened = source.opened(Request.of(options, **example))
    from anyjax import transforms

    model, args = opened.model, opened.args
    array = lambda x: model.source.as_array(x) if isinstance(x, np.ndarray) else x
    kwargs = {k: array(x) for k, x in opened.kwargs.items()}
    if options.quantize:  # first: rolled weights share no scales
        model = transforms.quantize(model, options.quantize)
    if options.roll:
        model = transforms.roll(model, *args, **kwargs)
    return replace(opened, model=model, kwargs=kwargs)


def _platforms(options: Export) -> tuple[str, ...]:
    return tuple(x.strip() for x in options.platforms.split(","))


def _leaves(tree: PyTree) -> list[Any]:
    import jax

    return jax.tree.leaves(tree)


def _symbolic(options: Export, opened: Opened) -> dict[str, str]:
    """Returns symbolic shapes by argument, for ``model.save``: only texts have a length."""
    from anyjax.trees import names

    arguments = names(opened.args, opened.kwargs, opened.model.source.positional)
    arrays = [k for k, x in zip(arguments, _leaves((opened.args, opened.kwargs))) if _array(x)]
    batch = "batch" if options.batch == SYMBOLIC else "_"
    if options.length == SYMBOLIC:
        shapes = {k: f"{batch}, length" if k in TEXT else f"{batch}, ..." for k in arrays}
    else:
        shapes = dict.fromkeys(arrays, f"{batch}, ...")
    return {k: x for k, x in shapes.items() if x != "_, ..."}


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
    from anyjax.cli.sources.checkpoint import resolve
    from anyjax.cli.sources.saved import TOKENIZER
    from anyjax.saved.folder import add

    try:
        tokenizer = resolve(source, need_weights=False).tokenizer()
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
