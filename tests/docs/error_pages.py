"""Runs the programs of docs/errors/*.md and compares what they print.

In a page, a Python block that a text block follows raises the error or gives the warning of that
text; every other Python block runs without either. All blocks of a page are one program,
``example.py``. A block that begins with ``# NAME.py`` is a file, and a console block runs it.

``python -m tests.docs.error_pages`` writes the messages of today into the pages; with names of
pages, into those alone.
"""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anyjax import errors

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "errors"
CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and its section."""

    language: str
    text: str
    section: str
    message: str | None = None  # of the text block behind it

    @property
    def file(self) -> str | None:
        """The name of the file that it is, None for a part of the program."""
        match = re.match(r"# (\w+\.py)\n", self.text)
        return match and match[1]


def blocks(page: str) -> list[Block]:
    """Returns the blocks that run, each with the message that follows it."""
    matches = [*BLOCK.finditer(page)]
    result = []
    for match, following in zip(matches, [*matches[1:], None]):
        if match[1] == "text":
            continue
        start = page[: match.start()]
        section = re.findall(r"^## (.*)$", start, re.MULTILINE)[-1:]
        message = following[2] if following and following[1] == "text" else None
        result.append(Block(match[1], match[2], "".join(section), message))
    return result


def plain(message: str, folder: Path) -> str:
    """Returns a message without what differs from machine to machine: folders and addresses."""
    for prefix in (folder, ROOT):
        message = message.replace(f"{prefix}/", "").replace(str(prefix), ".")
    return re.sub(r"0x[0-9a-f]+", "0x...", message).rstrip() + "\n"


def as_printed(raised: BaseException, folder: Path) -> str:
    """Returns the last lines of Python's traceback."""
    return plain(f"anyjax.errors.{type(raised).__name__}: {raised}", folder)


def prepare(folder: Path, page: str) -> None:
    """Writes the files of a page into a folder that stands for the repository's root."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page):
        if block.language == "python" and block.file:
            (folder / block.file).write_text(block.text)


def run(page: str, folder: Path) -> Iterator[tuple[Block, BaseException | None, str]]:
    """Runs the program of a page in a folder, which has to be the working one.

    Yields each block with what it raised or warned of, and that as Python prints it.
    """
    module = types.ModuleType("example")
    module.__file__ = str(folder / "example.py")
    sys.modules["example"], before = module, sys.modules.get("example")
    program = ""
    try:
        for block in blocks(page):
            if block.language != "python" or block.file:
                continue
            code = "\n" * program.count("\n") + block.text
            program += block.text + "\n"
            Path(module.__file__).write_text(program)
            linecache.checkcache()
            yield block, *_outcome(code, module, folder)
    finally:
        sys.modules.pop("example")
        if before is not None:
            sys.modules["example"] = before


def _outcome(text: str, module: types.ModuleType, folder: Path) -> tuple[BaseException | None, str]:
    code = compile(text, module.__file__ or "", "exec")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(code, vars(module))
        except errors.AnyjaxError as error:
            return error, as_printed(error, folder)
    for warning in warned:
        category = warning.category.__name__
        if category in CLASSES:
            text = f"{Path(warning.filename).name}:{warning.lineno}: {category}: {warning.message}"
            return warning.message, plain(text, folder)  # type: ignore[return-value]
    return None, ""


def run_in_processes(command: str, folder: Path) -> str:
    """Returns what a console block of a page prints, without Python's tracebacks."""
    command = re.sub(r"^\$ python", sys.executable, command.strip())
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    result = subprocess.run(
        command.split(), cwd=folder, env=environment, capture_output=True, text=True
    )
    return plain(result.stdout + result.stderr, folder)


def rewrite(file: Path) -> None:
    """Writes the messages of today into a page."""
    page = file.read_text()
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path).resolve()
        os.chdir(folder)
        prepare(folder, page)
        for block, _, printed in run(page, folder):
            if block.message is not None:
                page = page.replace(
                    f"```python\n{block.text}```\n\n```text\n{block.message}```",
                    f"```python\n{block.text}```\n\n```text\n{printed}```",
                )
            elif printed:
                print(f"{file}, {block.section}: {printed}")
        os.chdir(ROOT)
    file.write_text(page)


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(CLASSES):
        rewrite(FOLDER / f"{name}.md")
