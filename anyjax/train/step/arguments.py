"""Argument checks of the public functions: swapped arguments are reported at once, by name."""

from __future__ import annotations

import optax

from anyjax.errors import WrongArguments
from anyjax.model import Model


def check_fit(state: object, step: object, batches: object) -> None:
    """Raises WrongArguments for arguments that ``fit`` cannot take.

    ``state`` and ``step`` may be of classes that wrap ours.
    """
    if isinstance(state, Model):
        raise WrongArguments(
            "fit got a Model as its state",
            why="an optimizer's state, a key and the number of the step belong to it",
            do="give anyjax.train.TrainState.create(model, tx)",
        )
    fits = hasattr(state, "opt_state"), hasattr(step, "prepared"), _iterable(batches)
    if not all(fits):
        _raise(
            "fit(state, step, batches)", fits, state=state, step=step, batches=batches,
            do="the step is what anyjax.train.make_step(loss_fn, tx) returns",
        )  # fmt: skip


def check_best(early_stop: int | None, keep_best: str | None) -> None:
    """Raises WrongArguments for ``early_stop`` without ``keep_best``."""
    if early_stop is not None and keep_best is None:
        raise WrongArguments(
            "early_stop without keep_best",
            why="it stops when there is no new best, and nothing says what is best",
            do='give keep_best="min eval_loss" or the like',
        )


def check_evaluate(state: object, batches: object, metric_fn: object) -> None:
    """Raises WrongArguments for arguments that ``evaluate`` cannot take."""
    fits = hasattr(state, "params"), _iterable(batches), callable(metric_fn)
    if not all(fits):
        _raise(
            "evaluate(state, batches, metric_fn)", fits,
            state=state, batches=batches, metric_fn=metric_fn,
            do="metric_fn takes (model, batch) and gives a loss or a dict",
        )  # fmt: skip


def check_step(loss_fn: object, tx: object) -> None:
    """Raises WrongArguments for arguments that ``make_step`` cannot take."""
    fits = callable(loss_fn), isinstance(tx, optax.GradientTransformation)
    if not all(fits):
        _raise(
            "make_step(loss_fn, tx)", fits, loss_fn=loss_fn, tx=tx,
            do="loss_fn takes (model, batch), tx is an optax optimizer",
        )  # fmt: skip


def check_create(model: object, tx: object) -> None:
    """Raises WrongArguments for arguments that ``TrainState.create`` cannot take."""
    fits = hasattr(model, "params"), isinstance(tx, optax.GradientTransformation)
    if not all(fits):
        _raise(
            "TrainState.create(model, tx)", fits, model=model, tx=tx,
            do="the model is one of anyjax.from_torch or the like, tx an optax optimizer",
        )  # fmt: skip


def _iterable(value: object) -> bool:
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def _raise(call: str, fits: tuple[bool, ...], *, do: str, **arguments: object) -> None:
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
