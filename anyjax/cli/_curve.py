"""The loss of a run as a picture: in the terminal, and as PNG."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TextIO

import numpy as np

from anyjax.cli import _shown

BLOCKS, LETTERS = " ▁▂▃▄▅▆▇█", " .-=#"
PICTURE = "loss.png"


def losses(folder: Path, name: str = "loss") -> tuple[list[int], list[float]]:
    """Reads (steps, values) of a metric from ``metrics.jsonl``."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    points = [(x["step"], x[name]) for x in map(json.loads, lines) if name in x]
    return [step for step, _ in points], [value for _, value in points]


def blocks(stream: TextIO) -> str:
    """Returns the characters that a curve is drawn of: ASCII where a stream has no others."""
    return BLOCKS if _shown.has_unicode(stream) else LETTERS


def drawn(values: list[float], width: int = 60, height: int = 6, blocks: str = BLOCKS) -> str:
    """Draws a curve in lines of block characters, the largest value on top.

    Example:
      >>> print(drawn([4.0, 2.0, 1.0, 0.0], width=4, height=1))
      4.000 █▄▂
      0.000
    """
    columns = [float(np.mean(chunk)) for chunk in np.array_split(values, min(width, len(values)))]
    low, high = min(columns), max(columns)
    fills = [(x - low) / (high - low or 1) * height for x in columns]
    level = lambda fill, row: blocks[int(np.clip(fill - row, 0, 1) * (len(blocks) - 1))]
    lines = ["".join(level(fill, row) for fill in fills) for row in reversed(range(height))]
    marks = [f"{high:.3f}", *[" " * len(f"{high:.3f}")] * (height - 1)]
    return "\n".join(f"{mark} {line}".rstrip() for mark, line in zip(marks, lines)) + f"\n{low:.3f}"


def picture(folder: Path) -> Path | None:
    """Writes ``loss.png`` and returns its path, None if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="tight")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats per token)")
    for name, label in (("loss", "training"), ("eval_loss", "held out")):
        steps, values = losses(folder, name)
        if steps:
            axes.plot(steps, values, label=label, marker="." if len(steps) < 20 else None)
    axes.legend()
    figure.savefig(folder / PICTURE, dpi=120)
    return folder / PICTURE
