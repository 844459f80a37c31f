"""``anyjax explain``: the page of an error in the terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markdown import Markdown

from anyjax import explanations
from anyjax.cli import _shown
from anyjax.cli.writing import Explain

WIDEST = 100  # columns of a text that is read


def explain(options: Explain) -> None:
    """Runs ``anyjax explain``; what is no terminal gets the Markdown."""
    name = None if options.list else options.name
    if options.json:
        page = name and {"text": explanations.explanation(name)}
        _shown.as_json(page or explanations.summaries())
    elif name is None:
        _shown.console().print(_shown.table(["error", "what it means"], _rows()))
    elif sys.stdout.isatty():
        console = Console()
        text = Markdown(explanations.explanation(name), code_theme="ansi_dark")
        console.print(text, width=min(console.width, WIDEST))
    else:
        print(explanations.explanation(name))


def _rows() -> list[tuple[str, str]]:
    return [(name, text.replace("`", "")) for name, text in explanations.summaries().items()]
