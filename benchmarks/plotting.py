"""Plots as small SVG files, the same file for the same numbers."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "anyjax", "svg.fonttype": "none"}
from matplotlib import pyplot  # noqa: E402


def save(figure: pyplot.Figure, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
