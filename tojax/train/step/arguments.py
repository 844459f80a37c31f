"""Arguments that stand in another's place: told at once, by what each of them is."""

from __future__ import annotations

from typing import Any

import optax

from tojax.errors import WrongArguments
from tojax.model import Model


def check_fit(state: Any, step: Any, batches: Any) -> None:
    """Raises WrongArguments where ``fit`` gets something else than it takes.

    ``state`` and ``step`` may be of classes that wrap ours.
    """
    if isinstance(state, Model):
        raise WrongArguments(
            "fit got a Model as its state",
            why="an optimizer's state, a key and the number of the step belong to it",
            do="give tojax.train.TrainState.create(model, tx)",
        )
    fits = hasattr(state, "opt_state"), hasattr(step, "prepared"), _iterable(batches)
    if not all(fits):
        _raise(
            "fit(state, step, batches)", fits, state=state, step=step, batches=batches,
            do="the step is what tojax.train.make_step(loss_fn, tx) returns",
        )  # fmt: skip


def check_best(early_stop: int | None, keep_best: str | None) -> None:
    """Raises WrongArguments where ``fit`` is to stop without a new best and knows no best."""
    if early_stop is not None and keep_best is None:
        raise WrongArguments(
            "early_stop without keep_best",
            why="it stops when there is no new best, and nothing says what is best",
            do='give keep_best="min eval_loss" or the like',
        )


def check_evaluate(state: Any, batches: Any, metric_fn: Any) -> None:
    """Raises WrongArguments where ``evaluate`` gets something else than it takes."""
    fits = hasattr(state, "params"), _iterable(batches), callable(metric_fn)
    if not all(fits):
        _raise(
            "evaluate(state, batches, metric_fn)", fits,
            state=state, batches=batches, metric_fn=metric_fn,
            do="metric_fn takes (model, batch) and gives a loss or a dict",
        )  # fmt: skip


def check_step(loss_fn: Any, tx: Any) -> None:
    """Raises WrongArguments where ``make_step`` gets something else than it takes."""
    fits = callable(loss_fn), isinstance(tx, optax.GradientTransformation)
    if not all(fits):
        _raise(
            "make_step(loss_fn, tx)", fits, loss_fn=loss_fn, tx=tx,
            do="loss_fn takes (model, batch), tx is an optax optimizer",
        )  # fmt: skip


def check_create(model: Any, tx: Any) -> None:
    """Raises WrongArguments where ``TrainState.create`` gets something else than it takes."""
    fits = hasattr(model, "params"), isinstance(tx, optax.GradientTransformation)
    if not all(fits):
        _raise(
            "TrainState.create(model, tx)", fits, model=model, tx=tx,
            do="the model is one of tojax.from_torch or the like, tx an optax optimizer",
        )  # fmt: skip


def _iterable(value: Any) -> bool:
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def _raise(call: str, fits: tuple[bool, ...], *, do: str, **arguments: Any) -> None:
    wrong = [
        f"{name} is a {type(value).__name__}"
        for (name, value), right in zip(arguments.items(), fits)
        if not right
    ]
    raise WrongArguments(
        f"{call}: {', '.join(wrong)}",
        why=f"its arguments come in the order {', '.join(arguments)}",
        do=do,
    )
