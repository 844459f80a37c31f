"""``anyjax ops``: the operators of a framework, and how each is served."""

from __future__ import annotations

import difflib
import importlib
import sys

from anyjax.cli import _operators, _shown
from anyjax.cli._codes import ExitCode
from anyjax.cli.reading import Ops
from anyjax.errors import WrongValue
from anyjax.tables import markdown

FEW = 12  # operators whose signatures are printed, too
# By framework: what is imported, the title, the flag
FRAMEWORKS = {
    "torch": ("torch", "Torch", ""),
    "tensorflow": ("TensorFlow", "TensorFlow", " --tensorflow"),
    "onnx": ("onnx", "ONNX", " --onnx"),
}


def ops(options: Ops) -> None:
    """Runs ``anyjax ops``."""
    if options.onnx and options.tensorflow:
        raise WrongValue(
            "--tensorflow with --onnx",
            why="each has a table of its own",
            do="leave one of the two out",
        )
    framework = "onnx" if options.onnx else "tensorflow" if options.tensorflow else "torch"
    package, title, flag = FRAMEWORKS[framework]
    with _shown.progress(f"importing {package}"):
        importlib.import_module(f"anyjax.{framework}")  # fills the table
        listing = getattr(_operators, framework)()
    lines = [line for line in listing.lines if options.name in line.op]
    further = listing.further(options.name)
    if not lines and not further:
        _end_without(options.name, [line.op for line in listing.lines])
    if options.json:
        return _shown.as_json([line.about for line in lines])
    counted = listing.counted(lines)
    if options.markdown:
        print(f"# {title} operators\n\n{counted} Written by `anyjax ops{flag} --markdown`.\n")
        if listing.legend:
            print(f"{listing.legend}\n")
        print(markdown(listing.header, [line.in_markdown() for line in lines]))
        return None
    console = _shown.console()
    console.print(_shown.table(listing.header, [line.cells() for line in lines]), counted, sep="\n")
    if listing.legend:
        console.print(listing.legend)
    texts = [text for line in lines for text in (line.signature, line.stub) if text]
    for text in [*(texts if len(lines) <= FEW else ()), *further]:
        console.print(text)
    return None


def _end_without(name: str, known: list[str]) -> None:
    """Ends with exit code 2, after the nearest names."""
    shorts = {x.removeprefix("aten.").partition(".")[0].lower(): x for x in reversed(known)}
    near = [shorts[x] for x in difflib.get_close_matches(name.lower(), shorts, 5, 0.6)]
    suggestion = f"; near are {', '.join(near)}" if near else ""
    print(f"error: no operator has {name!r} in its name{suggestion}", file=sys.stderr)
    sys.exit(ExitCode.USAGE)
