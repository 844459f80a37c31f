"""Evaluation: means of metrics over a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from anyjax import trees
from anyjax.calls.layouts import Layouts
from anyjax.calls.program import program
from anyjax.errors import DataDependent, NoData, WrongBatch
from anyjax.model import Model
from anyjax.parallel.batches import mesh_of
from anyjax.train.data import agreement, batching
from anyjax.train.data.feed import set_process_share
from anyjax.train.step import arguments
from anyjax.train.step.forward import StatefulModel
from anyjax.train.step.train_state import TrainState
from anyjax.trees import Constant, Static
from anyjax.typing import PyTree


def evaluate(
    state: TrainState | Model, batches: Iterable[object], metric_fn: Callable[[Model, Any], Any]
) -> dict[str, float]:
    """Averages ``metric_fn`` over all rows, in evaluation mode.

    Args:
      state: a TrainState, whose moving average is taken if it has one, or a Model.
      batches: the data; a last batch may be smaller.
      metric_fn: ``metric_fn(model, batch)``, jitted: a dict of means over the batch's rows, or what
        a loss function returns: a loss, or (loss, dict).

    Returns:
      The means by name; a loss is ``loss``.

    Raises:
      NoData: there is no batch.
      WrongArguments: arguments in another order.
      WrongBatch: parts of several processes that are no batch together, or arrays of which it is
        not known how many rows a batch has.

    Example:
      >>> import numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Dropout(0.5))
      >>> anyjax.train.evaluate(model, [np.ones(4), np.ones(2)], lambda model, x: model(x).mean())
      {'loss': 1.0}
    """
    arguments.check_evaluate(state, batches, metric_fn)
    model = (state.averaged if isinstance(state, TrainState) else state).eval()
    mesh = mesh_of(model.params)
    results: list[dict[str, jax.Array]] = []
    sizes: list[list[int]] = []  # of each array's first axis, by batch
    for batch in set_process_share(batches, mesh):
        batch = batching.as_arrays(model.source, batch)
        batch = batch if mesh is None else agreement.place_batch(batch, mesh, first=not results)
        results.append(_metrics(model, metric_fn, batch))
        sizes.append([x.shape[0] for x in jax.tree.leaves(batch) if np.ndim(x)])
    rows = _rows(sizes)
    if not any(rows):
        raise NoData(
            "there is no batch to evaluate",
            why=f"a {type(batches).__name__} gave none",
            do="an iterator can be used once: give a list or a loader",
        )
    counted = np.flatnonzero(rows)  # the mean of no rows is NaN
    mean = lambda *values: float(np.average(np.asarray(values)[counted], weights=rows[counted]))
    return jax.tree.map(mean, *jax.device_get(results))


def _rows(sizes: list[list[int]]) -> np.ndarray:
    """Returns how many rows each batch has: what most of its arrays say.

    Raises:
      WrongBatch: as many arrays say something else, and the mean depends on it.
    """
    if not sizes or not sizes[0] or len({*map(len, sizes)}) > 1:
        return np.ones(len(sizes), int)
    by_array = Counter(zip(*sizes))
    (most, count), *fewer = by_array.most_common()
    varying = {x for x, n in [(most, count), *fewer] if n == count and len({*x}) > 1}
    if fewer and fewer[0][1] == count and varying:
        batch = next(i for i, x in enumerate(zip(most, fewer[0][0])) if x[0] != x[1])
        raise WrongBatch(
            f"a batch has {most[batch]} rows by one array and {fewer[0][0][batch]} by another",
            why="the mean over all rows counts each batch by its rows, and batches differ in size",
            do="leave what has no row for each example, such as weights of classes, to metric_fn, "
            "or give batches of one size",
        )
    return np.array(most)


def _metrics(model: Model, metric_fn: Callable, batch: PyTree) -> dict[str, jax.Array]:
    """Returns the metrics of a batch. State entries and arrays of the batch that shapes depend on
    become constants.
    """
    layouts = model.source.cache.notes.setdefault((evaluate, metric_fn), Layouts())
    evaluated = lambda constants: layouts(
        lambda batch: _evaluate_batch(model, metric_fn, batch, Static(constants), Static(layouts)),
        batch,
    )
    try:
        return evaluated({})
    except DataDependent as error:
        if trees.STATE not in error.arguments:
            raise
        settings = {k: Constant(v) for k, v in model.state.items() if trees.is_setting(v)}
        return evaluated(settings)


@program(static_argnames=("metric_fn", "constants", "layouts"))
def _evaluate_batch(model, metric_fn, batch, constants, layouts):
    settings = {k: v.array for k, v in constants.value.items()}
    batch = layouts.value.traced(batch)
    out = metric_fn(StatefulModel(model.with_state({**model.state, **settings})), batch)
    if isinstance(out, dict):
        return out
    loss, aux = out if isinstance(out, tuple) else (out, {})
    return {"loss": loss, **aux}
