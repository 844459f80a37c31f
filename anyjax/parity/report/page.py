"""The figures of a report as its page shows them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from anyjax.compare.differences import distances
from anyjax.compare.judge import Comparison, faults
from anyjax.compare.side import Passes
from anyjax.parity.predictions import Predictions
from anyjax.report_page import filled

FRAGMENT = Path(__file__).with_name("page.html")
DIGITS = 3  # of the figures in a page
CELLS = 48  # rows and columns of a heat map at most
MAPS = 6  # modules with heat maps at most, of those at fault
HEALTHY = 3  # and in a report without a fault
POSITIONS = 400  # of the chart of predictions at most
COLUMNS = (
    "path", "kind", "dtype", "shape", "total", "added", "inherited", "rounding", "wide", "cosine",
    "ulps", "excess", "fault",
)  # fmt: skip

Json = Mapping[str, object]


def page(
    about: Json,
    seconds: Mapping[str, float],
    table: str,
    modules: Sequence[Comparison],
    gradients: Sequence[Comparison],
    operators: Sequence[Comparison],
    predictions: Predictions | None,
    passes: Passes | None,
) -> str:
    """Returns the text of a page.

    Args:
      about: the report's own figures by name, such as its verdict.
      table: for browsers without JavaScript.
      seconds, modules, gradients, operators, predictions, passes: as in ``Report``.
    """
    data = {
        **about,
        "seconds": {side: figure(x) for side, x in seconds.items()},
        "columns": COLUMNS,
        "modules": [*map(_row, modules)],
        "gradients": [*map(_row, gradients)],
        "operators": [*map(_row, operators)],
        "predictions": None if predictions is None else _predictions(predictions),
        "maps": [] if passes is None else _maps(modules, passes),
    }
    title, state = (
        f"{about['model']} beside {about['reference']}",
        "equal" if about["ok"] else "fault",
    )
    texts = {"verdict": str(about["verdict"]), "state": state, "table": table}
    return filled("anyjax verify", FRAGMENT, title, data, **texts)


def figure(x: float) -> float | str:
    """Returns a number as JSON can hold it, with few digits.

    Example:
      >>> figure(1.23456e-07), figure(float("-inf"))
      (1.23e-07, '-inf')
    """
    x = float(x)
    return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else str(x)


def _row(x: Comparison) -> list[object]:
    """Returns the columns of a comparison; errors in parts of the outputs' scale."""
    scale = x.scale or 1.0
    errors = (x.total.rms, x.added.rms, x.inherited, x.rounding, x.wide)
    return [
        x.path,
        x.kind,
        x.dtype,
        [*x.shape],
        *(figure(e / scale) for e in errors),
        float(f"{x.total.cosine:.7f}") if math.isfinite(x.total.cosine) else str(x.total.cosine),
        figure(x.total.ulps),
        figure(x.excess),
        x.fault,
    ]


def _predictions(x: Predictions) -> Json:
    """Returns the largest divergence by position, with the average agreement there."""
    divergence, agreement = x.divergence.max(0), x.agreement.mean(0)
    edges = _edges(len(divergence), POSITIONS)
    return {
        "positions": edges.tolist(),
        "divergence": [*map(figure, np.maximum.reduceat(divergence, edges))],
        "agreement": [*map(figure, np.minimum.reduceat(agreement, edges))],
        "average": figure(x.agreement.mean()),
        "rows": len(x.divergence),
        "length": len(divergence),
        "first": None if x.first is None else [*x.first[:2], figure(x.first[2])],
        "perplexity": [float(f"{p:.5g}") if math.isfinite(p) else str(p) for p in x.perplexity],
    }


def _maps(modules: Sequence[Comparison], passes: Passes) -> list[Json]:
    """Returns the heat maps of the worst modules."""
    healthy = sorted(modules, key=lambda x: -x.excess)[:HEALTHY]
    worst = faults([*modules])[:MAPS] or [x for x in healthy if x.excess > 0]
    maps = (_map(x, passes) for x in worst)
    return [x for x in maps if x is not None]


def _map(x: Comparison, passes: Passes) -> Json | None:
    """Returns both sides' values of a module as matrices, and their difference.

    Both sides have the same inputs, but where that leaves no difference: then each is on its own.
    """
    sides = [p.values.get(x.path, []) for p in (passes.expected, passes.added, passes.actual)]
    if not all(sides) or not all(side[0].size for side in sides):
        return None
    expected, added, actual = (np.asarray(side[0], np.float64) for side in sides)
    same_inputs = added.shape == expected.shape and bool(distances(added, expected).any())
    values = added if same_inputs else actual
    about = {"path": x.path, "shape": [*expected.shape], "sameInputs": same_inputs}
    matrix = functools.partial(_cells, split=_split(expected.shape))
    if values.shape != expected.shape:
        model = _cells(values, np.add, _split(values.shape))
        return about | {"reference": matrix(expected, np.add), "model": model, "difference": None}
    return about | {
        "reference": matrix(expected, np.add),
        "model": matrix(values, np.add),
        "difference": matrix(distances(values, expected), np.maximum),
    }


def _split(shape: tuple[int, ...]) -> int:
    """Returns the number of leading axes that become the rows of the squarest matrix."""
    ratio = lambda k: abs(math.log(math.prod(shape[:k]) / math.prod(shape[k:])))
    return min(range(len(shape)), key=ratio, default=0)


def _cells(x: np.ndarray, reduce: np.ufunc, split: int) -> Json:
    """Returns an array as a small matrix, a block of values in each cell: their sum's mean, or
    their maximum.
    """
    rows = math.prod(x.shape[:split])
    x = x.reshape(rows, -1)
    across, along = (_edges(n, CELLS) for n in x.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        cells = reduce.reduceat(reduce.reduceat(x, along, axis=1), across, axis=0)
        if reduce is np.add:
            counts = [np.diff(edges, append=n) for edges, n in zip((across, along), x.shape)]
            cells = cells / np.outer(*counts)
    return {"size": [*x.shape], "axes": split, "cells": [[*map(figure, row)] for row in cells]}


def _edges(size: int, limit: int) -> np.ndarray:
    """Returns where each of at most ``limit`` blocks begins."""
    count = min(size, limit)
    return np.arange(count) * size // max(count, 1)
