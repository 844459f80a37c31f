"""The pages of errors and warnings as a terminal shows them: what ``anyjax explain`` prints.

They are those of the site, docs/errors. A wheel carries them, so no network is needed.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from anyjax.errors import AnyjaxError, WrongValue

PACKAGE = Path(__file__).parent
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
ROW = re.compile(r"^\| \[(\w+)\]\(\1\.md\) \| (.+?) \|", re.MULTILINE)


def folder() -> Path:
    """Returns where the pages are: in the package, or in the source tree that it is part of.

    Raises:
      AnyjaxError: neither has them.
    """
    places = PACKAGE / "pages", PACKAGE.parent / "docs" / "errors"
    for place in places:
        if (place / "index.md").exists():
            return place
    raise AnyjaxError(
        "the pages of errors are missing",
        where=" and ".join(map(str, places)),
        why="this copy of anyjax is not whole: the wheel has them, and so has the source tree",
        do="install anyjax again",
    )


def summaries() -> dict[str, str]:
    """Returns what each error and warning means, in one sentence, by its name.

    Example:
      >>> summaries()["MissingRng"]
      'The model draws random numbers, and no key was passed.'
    """
    return dict(ROW.findall((folder() / "index.md").read_text(encoding="utf-8")))


def explanation(name: str) -> str:
    """Returns the page of an error or a warning, in Markdown; links name commands and files.

    Args:
      name: of the class, in any case, with or without ``anyjax.errors.`` before it.

    Raises:
      WrongValue: there is no such error; the message has those of a similar name.

    Example:
      >>> print(explanation("missingrng").splitlines()[0])
      # MissingRng
    """
    short = name.rpartition(".")[2]
    names = {x.lower(): x for x in summaries()}
    if short.lower() not in names:
        near = difflib.get_close_matches(short.lower(), names, 3, 0.5)
        suggestion = f"did you mean {' or '.join(names[x] for x in near)}? " if near else ""
        raise WrongValue(
            f"anyjax has no error {short!r}",
            why="only its own errors and warnings have a page; their names stand in anyjax.errors",
            do=f"{suggestion}anyjax explain --list names all",
        )
    text = (folder() / f"{names[short.lower()]}.md").read_text(encoding="utf-8")
    return LINK.sub(_followed, text)


def _followed(link: re.Match[str]) -> str:
    """Returns what a reader without a browser follows instead of a link."""
    label, target = link[1], link[2]
    if target.startswith("https://"):
        return f"{label} ({target})"
    if "/" not in target:
        page = target.removesuffix(".md")
        return f"`anyjax explain {'--list' if page == 'index' else page}`"
    return f"{label} (docs/{target.removeprefix('../')})"
