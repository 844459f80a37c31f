"""Batches epoch after epoch, each with the position after it, from which a new run can go on."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from anyjax.errors import NoData, WrongArguments
from anyjax.parallel.batches import shares
from anyjax.typing import PyTree


@dataclass(frozen=True)
class Position:
    """A place between two batches: the epoch, the number of its batches so far, and the state of
    the iterator, where it has one and it was saved.
    """

    epoch: int = 0
    batch: int = 0
    iterator_state: Any = None

    def as_json(self) -> dict[str, Any]:
        """Returns the entries of a checkpoint."""
        state = self.iterator_state
        if isinstance(state, bytes):
            state = {"bytes": base64.b64encode(state).decode()}
        return {"epoch": self.epoch, "batch": self.batch, "own": state}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Position:
        """Reads the entries of a checkpoint."""
        state = saved["own"]
        if isinstance(state, dict) and state.keys() == {"bytes"}:
            state = base64.b64decode(state["bytes"])
        return cls(saved["epoch"], saved["batch"], state)


def feed(
    batches: Iterable[PyTree],
    begin: Position,
    epochs: int | None,
    saves_state: Callable[[int], bool] = lambda count: True,
) -> Iterator[tuple[Position, Any]]:
    """Yields (position after the batch, batch), from ``begin`` on.

    Sources with ``set_epoch(epoch, start)``, and iterators with ``get_state`` and ``set_state``
    (grain's), go to a position at once; other sources are iterated up to it.

    Args:
      batches: an iterable, iterated again for each epoch, or an iterator for a single epoch.
      begin: where to begin.
      epochs: where to end, None for never.
      saves_state: whether to ask for the iterator's state after so many batches.

    Raises:
      NoData: there is no batch, or an iterator ends before the epochs do.
    """
    epoch, count = begin.epoch, 0
    while epochs is None or epoch < epochs:
        skipped = begin.batch if epoch == begin.epoch else 0
        state = begin.iterator_state if epoch == begin.epoch else None
        number, iterator = skipped, _start(batches, epoch, skipped, state)
        get_state = getattr(iterator, "get_state", None)
        for batch in iterator:
            number, count = number + 1, count + 1
            state = get_state() if get_state is not None and saves_state(count) else None
            yield Position(epoch, number, state), batch
        if not number:
            _raise_ended(batches, epoch, count)
        epoch += 1


def _start(batches: Any, epoch: int, skipped: int, state: Any) -> Iterator[Any]:
    seeks = _seek(batches, epoch, skipped)
    iterator = iter(batches)
    if state is not None:
        iterator.set_state(state)
    elif not seeks:
        for _ in range(skipped):
            next(iterator, None)
    return iterator


def set_process_share(batches: Any, mesh: Any) -> Any:
    """Sets the share of this process on the source, or its sampler, if it has ``set_share``.

    Returns:
      The batches.

    Raises:
      WrongBatch: a batch cannot be divided among the processes.
    """
    if mesh is not None and mesh.is_multi_process:
        for holder in (batches, getattr(batches, "sampler", None)):
            if holder is not None and hasattr(holder, "set_share"):
                holder.set_share(*shares(mesh)[:2])
    return batches


def _seek(batches: Any, epoch: int, skipped: int) -> bool:
    """Sets where the source, or its sampler, begins; returns whether one of them can skip."""
    sampler: Any = getattr(batches, "sampler", None)
    if hasattr(batches, "start") and hasattr(batches, "set_epoch"):
        batches.set_epoch(epoch, skipped)
        return True
    if hasattr(sampler, "start") and hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch, skipped * batches.batch_size)
        return True
    for holder in (batches, sampler, getattr(batches, "dataset", None)):
        if holder is not None and hasattr(holder, "set_epoch"):
            holder.set_epoch(epoch)
    return False


def check_repeatable(batches: object) -> None:
    """Raises WrongArguments for a DataLoader that shuffles by torch's generator: a resumed run
    would see other batches.
    """
    sampler = getattr(batches, "sampler", None)
    if type(sampler).__name__ in ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"):
        raise WrongArguments(
            f"the DataLoader shuffles with {type(sampler).__name__}",
            why="its order cannot be repeated, and a run in a folder is one that can be continued",
            do="give DataLoader(sampler=anyjax.train.Shuffle(len(dataset), key)) without shuffle",
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
