"""A training run: steps, metrics, evaluation, checkpoints, resuming after an interruption."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsFloat

import jax
import numpy as np

from anyjax.multiprocess import together
from anyjax.parallel.batches import mesh_of
from anyjax.train.data import agreement, batching
from anyjax.train.data.batches import prefetch as prefetched
from anyjax.train.data.feed import Position, check_repeatable, feed, set_process_share
from anyjax.train.run import diagnose
from anyjax.train.run.checkpoint import Best, Checkpoints
from anyjax.train.run.logs import Log, Sink, scalars
from anyjax.train.step import arguments
from anyjax.train.step.train_state import TrainState
from anyjax.train.step.training_step import Step


def fit(
    state: TrainState,
    step: Step,
    batches: Iterable[object],
    *,
    folder: str | os.PathLike[str] | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    evaluate: Callable[[TrainState], Mapping[str, SupportsFloat]] | None = None,
    every: int = 100,
    keep: int = 3,
    keep_best: str | None = None,
    early_stop: int | None = None,
    log: Sequence[Sink] = (),
    prefetch: int = 2,
    sharding: jax.sharding.Sharding | None = None,
    progress: bool = True,
) -> TrainState:
    """Trains, and returns the last state.

    With a folder the run is resumed by calling ``fit`` again: it goes on after the last checkpoint,
    with the batches, keys and optimizer state of a run that was never interrupted.

    In a job of several processes (``anyjax.parallel.initialize``) each calls ``fit`` with the same
    arguments and its own rows of each batch, which ``Batches`` and ``Shuffle`` find by themselves.
    The folder is one that all of them see; the first process writes the log. A run goes on with
    another number of processes, or on another mesh.

    Args:
      state: where to begin.
      step: from ``make_step``.
      batches: a list, a DataLoader, a grain pipeline, ``Batches``, any iterable; iterated again for
        each epoch. To resume, iterating again must give the same batches.
      folder: for ``metrics.jsonl``, a line for each step, and ``checkpoints``. Where the loss
        function's aux counts ``tokens``, lines have ``tokens_per_second``, and so has the bar.
      steps: how many in all, those before a resume included.
      epochs: how many; without steps 1 is the default, with them no limit.
      evaluate: ``evaluate(state)`` gives metrics, which are called ``eval_...`` from then on.
      every: steps from one evaluation and checkpoint to the next; the last step has them, too.
      keep: how many checkpoints stay.
      keep_best: ``"min eval_loss"`` or the like: that checkpoint stays as well.
      early_stop: after how many evaluations in a row without a new best to stop.
      log: more receivers of ``(step, metrics)``, such as ``anyjax.train.tensorboard(folder)``.
      prefetch: how many batches are put on the device ahead.
      sharding: of the batches.
      progress: whether a bar is shown, where somebody looks, and that the step is compiled, on
        stderr.

    Raises:
      Diverged: a loss or gradient is NaN or infinite; the message names where it began. No
        checkpoint is written after it.
      NoData: there is no batch.
      WrongBatch: a batch of another kind than the first one.
      NotWritten: the folder cannot be written to; earlier checkpoints stay.
      OtherCheckpoint: the folder belongs to another model or optimizer.
      ProcessLost: another process of the job is gone. Where JAX notices before a step does, it ends
        this one itself.
      WrongArguments: several processes, and the model is not on a mesh of all of them; arguments in
        another order.

    Example:
      >>> import numpy as np, optax, torch
      >>> model, tx = anyjax.from_torch(torch.nn.Linear(3, 1)), optax.sgd(0.1)
      >>> step = anyjax.train.make_step(lambda model, x: (model(x) ** 2).mean(), tx)
      >>> state = anyjax.train.TrainState.create(model, tx)
      >>> batches = anyjax.train.Batches(np.ones((8, 3), np.float32), 2, key=0)
      >>> int(anyjax.train.fit(state, step, batches, epochs=3).step)
      12
    """
    arguments.check_fit(state, step, batches)
    arguments.check_best(early_stop, keep_best)
    best = None if keep_best is None else Best(keep_best)
    epochs = 1 if steps is None and epochs is None else epochs
    run = Run(step, evaluate, every, steps, best, early_stop)
    agreement.check_mesh(state.params)
    mesh = mesh_of(state.params)
    if folder is not None:
        check_repeatable(batches)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            run.checkpoints = stack.enter_context(Checkpoints(folder, keep, best))
        state = run.restore(step.prepared(state))
        done = int(state.step)
        total = steps if epochs is None or steps is not None else _length(batches, epochs)
        run.log = stack.enter_context(Log(folder, log, done, total, progress))
        # an iterator's state is that of one process, and a checkpoint has room for one
        one_process = jax.process_count() == 1
        saves_state = lambda count: one_process and run.is_checkpoint_step(done + count)
        remaining = None if steps is None else max(steps - done, 0)
        batches = set_process_share(batches, mesh)
        positioned: Iterator = feed(batches, run.position, epochs, saves_state)
        positioned = (
            (position, batching.as_arrays(state.model.source, batch))
            for position, batch in itertools.islice(positioned, remaining)
        )
        if mesh is not None and mesh.is_multi_process:
            positioned, sharding = agreement.place_batches(positioned, mesh, sharding), None
        with together("look at what the others say; start again: it goes on where it was saved"):
            ahead: Any = prefetched(positioned, max(prefetch, 1), sharding)
            return run(state, ahead)


@dataclass
class Run:
    """The loop over batches, and its progress."""

    step: Step
    evaluate: Callable[[TrainState], Mapping[str, SupportsFloat]] | None
    every: int
    steps: int | None
    best: Best | None
    early_stop: int | None
    checkpoints: Checkpoints | None = None
    log: Any = None
    position: Position = field(default_factory=Position)
    best_value: float | None = None
    evaluations_without_improvement: int = 0
    pending: Any = None  # the last step, whose metrics may still be computed
    last_saved_step: int = -1

    def __call__(self, state: TrainState, batches: Iterator[tuple[Position, Any]]) -> TrainState:
        done = self.last_saved_step = int(state.step)
        while not self.is_finished(done):
            try:
                self.position, batch = next(batches)
            except StopIteration:
                break
            if not self.step.compilations:
                self.log.say("compiling: the first step takes longer than those after it")
            state, metrics = self.step(state, batch)
            done += 1
            previous, self.pending = self.pending, (done, batch, metrics)
            self.log_step(state, previous)
            if self.is_checkpoint_step(done):
                self.evaluate_and_save(state, done)
        if done != self.last_saved_step:
            self.evaluate_and_save(state, done)
        return state

    def is_finished(self, done: int) -> bool:
        """Returns True after the last step, or where ``early_stop`` ends the run."""
        if self.early_stop is not None and self.evaluations_without_improvement >= self.early_stop:
            return True
        return self.steps is not None and done >= self.steps

    def is_checkpoint_step(self, done: int) -> bool:
        """Returns True if an evaluation and a checkpoint follow this step."""
        return done % self.every == 0 or done == self.steps

    def log_step(self, state: TrainState, pending: Any) -> None:
        """Waits for the metrics of a step, checks and logs them; the next step runs meanwhile.

        Raises:
          Diverged: the metrics are not finite.
        """
        if pending is None:
            return
        done, batch, metrics = pending
        metrics = jax.device_get({k: v for k, v in metrics.items() if np.ndim(v) == 0})
        diagnose.check_finite(self.step, state, batch, done, metrics)
        self.log.write(done, scalars(metrics), compiled=self.step.compilations)

    def evaluate_and_save(self, state: TrainState, done: int) -> None:
        """Evaluates the state, and writes a checkpoint."""
        pending, self.pending, self.last_saved_step = self.pending, None, done
        self.log_step(state, pending)
        metrics: dict[str, float] = scalars(pending[2]) if pending else {}
        if self.evaluate is not None:
            evaluation = scalars(self.evaluate(state), "eval_")
            self.log.write(done, evaluation, compiled=self.step.compilations)
            metrics |= evaluation
        if self.best is not None:
            value = self.best.value(metrics)
            if self.best.better(value, self.best_value):
                self.best_value, self.evaluations_without_improvement = value, 0
            else:
                self.evaluations_without_improvement += 1
        if self.checkpoints is not None:
            progress = {
                "record": self.best_value,
                "waited": self.evaluations_without_improvement,
                "position": self.position.as_json(),
            }
            self.checkpoints.save(state, progress, metrics)

    def restore(self, state: TrainState) -> TrainState:
        """Returns the state of the last checkpoint, or ``state`` if there is none."""
        restored = None if self.checkpoints is None else self.checkpoints.restore(state)
        if restored is None:
            return state
        state, progress = restored
        self.best_value = progress["record"]
        self.evaluations_without_improvement = progress["waited"]
        self.position = Position.from_json(progress["position"])
        if jax.process_count() > 1:  # the iterator's state is that of another process
            self.position = replace(self.position, iterator_state=None)
        return state


def _length(batches: object, epochs: int | None) -> int | None:
    return len(batches) * epochs if epochs is not None and hasattr(batches, "__len__") else None
