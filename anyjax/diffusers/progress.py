"""A bar of the steps of a program, while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
from tqdm.auto import tqdm

from anyjax.model import Model


class Steps:
    """Counts rounds of the loops of programs; the bar is that of the call that runs."""

    bar: Any = None

    def __call__(self) -> None:
        if self.bar is not None:
            self.bar.update()


STEPS = Steps()


def counting(model: Model) -> Model:
    """Returns the model with rounds that are counted; its programs are others."""
    source: Any = model.source
    cache = source.cache.variant(None, STEPS)
    return replace(model, source=replace(source, on_round=STEPS, cache=cache))


@contextlib.contextmanager
def shown(total: int | None) -> Iterator[None]:
    """Shows a bar until all that runs in here is done; steps beside a loop count at the end."""
    with tqdm(total=total) as bar:
        STEPS.bar = bar
        try:
            yield
            jax.effects_barrier()
            bar.update((total or bar.n) - bar.n)
        finally:
            STEPS.bar = None
