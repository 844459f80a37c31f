"""Batches epoch after epoch, each with the position after it, to which a new run can return."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tojax.errors import NoData, WrongArguments
from tojax.parallel.batches import shares


@dataclass(frozen=True)
class Position:
    """After a batch: the epoch, how many of its batches there were, and the iterator's own state
    where it has one and it was asked for.
    """

    epoch: int = 0
    batch: int = 0
    own: Any = None

    def as_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        own = self.own
        if isinstance(own, bytes):
            own = {"bytes": base64.b64encode(own).decode()}
        return {"epoch": self.epoch, "batch": self.batch, "own": own}

    @classmethod
    def of_json(cls, saved: dict[str, Any]) -> Position:
        """From a checkpoint."""
        own = saved["own"]
        if isinstance(own, dict) and own.keys() == {"bytes"}:
            own = base64.b64decode(own["bytes"])
        return cls(saved["epoch"], saved["batch"], own)


def feed(
    batches: Iterable[Any],
    begin: Position,
    epochs: int | None,
    asked: Callable[[int], bool] = lambda count: True,
) -> Iterator[tuple[Position, Any]]:
    """(position after it, batch), from ``begin`` on.

    Sources with ``set_epoch(epoch, start)``, or iterators with ``get_state`` and ``set_state``
    (grain's) go to a position at once; of others the first batches are left out.

    Args:
      batches: what can be iterated again for each epoch, or an iterator for a single one.
      begin: where to begin.
      epochs: where to end, None for never.
      asked: of which batch, counted from here, the iterator's own state is asked for.

    Raises:
      NoData: there is no batch, or an iterator ends before the epochs do.
    """
    epoch, count = begin.epoch, 0
    while epochs is None or epoch < epochs:
        skipped = begin.batch if epoch == begin.epoch else 0
        own = begin.own if epoch == begin.epoch else None
        number, iterator = skipped, _started(batches, epoch, skipped, own)
        for batch in iterator:
            number, count = number + 1, count + 1
            state = (
                iterator.get_state() if asked(count) and hasattr(iterator, "get_state") else None
            )
            yield Position(epoch, number, state), batch
        if not number:
            _raise_ended(batches, epoch, count)
        epoch += 1


def _started(batches: Any, epoch: int, skipped: int, own: Any) -> Iterator[Any]:
    """An iterator over an epoch, ``skipped`` batches of it left out."""
    seeks = _seek(batches, epoch, skipped)
    iterator = iter(batches)
    if own is not None:
        iterator.set_state(own)
    elif not seeks:
        for _ in range(skipped):
            next(iterator, None)
    return iterator


def divide(batches: Any, mesh: Any) -> Any:
    """The batches; a source, or its sampler, that can give a process's share of them is told which.

    Raises:
      WrongBatch: its batches cannot be divided so.
    """
    if mesh is not None and mesh.is_multi_process:
        for part in (batches, getattr(batches, "sampler", None)):
            if part is not None and hasattr(part, "set_share"):
                part.set_share(*shares(mesh)[:2])
    return batches


def _seek(batches: Any, epoch: int, skipped: int) -> bool:
    """Tells the source, or its sampler, where to begin; whether one understood."""
    sampler: Any = getattr(batches, "sampler", None)
    if hasattr(batches, "start") and hasattr(batches, "set_epoch"):
        batches.set_epoch(epoch, skipped)
        return True
    if hasattr(sampler, "start") and hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch, skipped * batches.batch_size)
        return True
    for part in (batches, sampler, getattr(batches, "dataset", None)):
        if part is not None and hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
    return False


def repeatable(batches: Any) -> None:
    """Raises WrongArguments for a DataLoader that shuffles by torch's own generator: a run that is
    continued would see other batches.
    """
    sampler = getattr(batches, "sampler", None)
    if type(sampler).__name__ in ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"):
        raise WrongArguments(
            f"the DataLoader shuffles with {type(sampler).__name__}",
            why="its order cannot be repeated, and a run in a folder is one that can be continued",
            do="give DataLoader(sampler=tojax.train.Shuffle(len(dataset), key)) without shuffle",
        )


def _raise_ended(batches: Any, epoch: int, count: int) -> None:
    if iter(batches) is batches and count:
        raise NoData(
            f"the iterator ended after {count} batches",
            why="it can be iterated once, and more steps or epochs were asked for",
            do="give a list, a loader, or an iterator that repeats itself",
        )
    raise NoData(
        "there is no batch",
        where=f"epoch {epoch} of a {type(batches).__name__}",
        why="nothing came out of it",
        do="look at its size: a batch that is not full may be left out",
    )
