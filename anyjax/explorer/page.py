"""The page of a model: one HTML file that needs nothing else, for a browser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from anyjax.parity.report.page import filled, write

__all__ = ["page", "write"]

TEMPLATE = Path(__file__).with_name("page.html")


def page(figures: Mapping[str, object], programs: Mapping[str, str], table: str) -> str:
    """Returns the text of a page.

    Args:
      figures: those of a report by name.
      programs: the text of each module's program, by path.
      table: for browsers without JavaScript.
    """
    unique = {text: i for i, text in enumerate(dict.fromkeys(programs.values()))}
    places = {path: unique[text] for path, text in programs.items()}
    data = {**figures, "programs": [*unique], "programOf": places}
    return filled(TEMPLATE, data, title=str(figures["name"]), table=table)
