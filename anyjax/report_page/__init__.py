"""Pages of reports: one HTML file that needs nothing else, for a browser or a printer.

A report has its own style, head and script in a ``page.html``; the frame around them, colours, and
a few functions of the script are those of all.
"""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from anyjax.errors import NotWritten

FOLDER = Path(__file__).parent


def filled(
    command: str, fragment: Path, title: str, data: Mapping[str, object], **texts: str
) -> str:
    """Returns a page.

    Args:
      command: that writes such pages.
      fragment: a file with the elements ``style``, ``header``, if there is one, and ``script``.
      title: of the page.
      data: for the script.
      **texts: for the places ``{{names}}``: ``table`` is shown without JavaScript, ``state`` is an
        attribute for the style. None is markup, whatever it holds.
    """
    report = fragment.read_text("utf-8")
    pieces = {x: (FOLDER / x).read_text("utf-8") for x in ("frame.css", "frame.js")}
    for name in ("style", "header", "script"):
        match = re.search(rf"<{name}>\n(.*?)</{name}>", report, re.S)
        pieces[name] = match[1] if match else ""
    frame = (FOLDER / "frame.html").read_text("utf-8")
    page = re.sub(r"\[\[([\w.]+)\]\]", lambda x: pieces[x[1]], frame)
    state = texts.setdefault("state", "")
    texts |= {"command": command, "title": title, "tab": f"{title}: {state}" if state else title}
    fills = {name: html.escape(x) for name, x in texts.items()}
    # no "<" is left that could end the script, so the rest of the text is inert
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    fills["data"] = re.sub("[<>&\u2028\u2029]", lambda x: f"\\u{ord(x[0]):04x}", text)
    return re.sub(r"\{\{(\w+)\}\}", lambda x: fills[x[1]], page)


def write(file: str | os.PathLike[str], text: str) -> None:
    """Writes a file as a whole: what was there before stays until the new one is complete.

    Raises:
      NotWritten: the system refuses to write, or the disk is full.
    """
    target = Path(file).expanduser()
    if target.is_symlink():  # replaces the file that the link points to, not the link
        target = target.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            written = Path(scratch) / "page.html"
            written.write_text(text, encoding="utf-8")
            os.replace(written, target)
    except OSError as error:
        raise NotWritten.of(target, error) from error
