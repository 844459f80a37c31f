"""A StableHLO module as the source of a Model."""

from __future__ import annotations

from typing import Any

from tojax.stablehlo.engine.evaluate import Run
from tojax.stablehlo.engine.parse import parse


def function_of(source: Any):
    run = Run(parse(source))
    return lambda *args: run.function("main", args)
