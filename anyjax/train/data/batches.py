"""Batches of arrays: collated from samples, shuffled by a key, prefetched to the device."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import jax
import numpy as np

from anyjax import trees
from anyjax.errors import NoData, WrongBatch
from anyjax.multiprocess import is_local
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import jax.typing

    from anyjax.typing import ArrayLike, Output

K = TypeVar("K")
T = TypeVar("T")


class Dataset(Protocol):
    """A dataset as those of Hugging Face."""

    def with_format(self, type: str) -> Any: ...


@overload
def numpy_collate(samples: Sequence[Mapping[K, object]]) -> dict[K, np.ndarray]: ...
@overload
def numpy_collate(samples: Sequence[tuple[object, ...]]) -> tuple[np.ndarray, ...]: ...
@overload
def numpy_collate(samples: Sequence[ArrayLike | jax.typing.ArrayLike]) -> np.ndarray: ...


def numpy_collate(samples: Sequence[object]) -> Any:
    """Stacks samples of equal structure into one batch of numpy arrays.

    A ``collate_fn`` for torch's DataLoader, workers included, and a ``batch_fn`` for grain.

    Args:
      samples: pytrees of arrays or numbers.

    Raises:
      WrongBatch: leaves of unequal shapes, which ``anyjax.train.bucket`` pads.

    Example:
      >>> batch = anyjax.train.numpy_collate([{"x": [1.0, 2.0], "y": 0}, {"x": [3.0, 4.0], "y": 1}])
      >>> batch["y"]
      array([0, 1])
    """
    return jax.tree.map(_stack, *samples)


def _stack(*leaves: Any) -> np.ndarray:
    arrays = [np.asarray(x) for x in leaves]
    if len({a.shape for a in arrays}) > 1:
        raise WrongBatch(
            f"samples of shapes {', '.join(sorted({str(a.shape) for a in arrays}))}",
            why="a batch is one array, in which all samples have the same shape",
            do="pad them: anyjax.train.bucket(sizes) is a collate function that does",
        )
    return np.stack(arrays)


class Shuffle:
    """A shuffled order of samples, another one in each epoch; the same key gives the same orders.

    A sampler for torch's DataLoader, whose own shuffling cannot be resumed: ``fit`` sets the epoch,
    and after an interruption where to go on. With several processes, each of which has a
    DataLoader, it gives each its share of the samples.

    Args:
      length: how many samples there are.
      key: a key or a seed.

    Example:
      >>> order = anyjax.train.Shuffle(5, key=0)
      >>> sorted(order) == list(range(5)), list(order) == list(order)
      (True, True)
    """

    def __init__(self, length: int, key: jax.Array | int = 0):
        self.length, self.epoch, self.start = length, 0, 0
        self.share = (0, 1)
        self.key = jax.random.key(key) if isinstance(key, int) else key

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Sets the epoch to iterate next, and how many of its samples to skip.

        Example:
          >>> order = anyjax.train.Shuffle(4, key=0)
          >>> order.set_epoch(1, start=3)
          >>> len(order)
          1
        """
        self.epoch, self.start = epoch, start

    def set_share(self, index: int, count: int) -> None:
        """Takes every ``count``-th sample from ``index`` on: the batches of all shares together are
        those of one process, whatever their size. Samples that do not divide are left out.

        Example:
          >>> order = anyjax.train.Shuffle(5, key=0)
          >>> order.set_share(1, 2)
          >>> len(order)
          2
        """
        self.share = (index, count)

    def order(self) -> np.ndarray:
        """Returns the indices of all samples in this epoch's order.

        Example:
          >>> sorted(anyjax.train.Shuffle(3, key=0).order().tolist())
          [0, 1, 2]
        """
        key = jax.random.fold_in(self.key, self.epoch)
        return np.asarray(jax.random.permutation(key, self.length))

    def __iter__(self) -> Iterator[int]:
        index, count = self.share
        indices = self.order()[: self.length // count * count][index::count]
        return iter(indices[self.start :].tolist())

    def __len__(self) -> int:
        return self.length // self.share[1] - self.start


class Batches(Generic[T]):
    """Arrays, or a dataset that takes lists of indices, cut into batches; iterable again and again.

    Args:
      data: arrays with a common first axis in any pytree, or a Hugging Face dataset, whose columns
        come as numpy.
      size: rows of a batch; the rest of an epoch that does not fill one is left out. With several
        processes it is the rows of all of them: ``fit`` and ``evaluate`` tell each its share.
      key: a key or a seed to shuffle by, None for the order of the data.
      rest: whether the rest comes as a smaller batch.

    Raises:
      NoData: the data has no batch of this size.
      WrongBatch: arrays have different numbers of rows.

    Example:
      >>> import numpy as np
      >>> batches = anyjax.train.Batches({"x": np.arange(5)}, 2)
      >>> [batch["x"].tolist() for batch in batches], len(batches)
      ([[0, 1], [2, 3]], 2)
    """

    @overload
    def __init__(
        self: Batches[dict[str, np.ndarray]],
        data: Dataset,
        size: int,
        *,
        key: jax.Array | int | None = None,
        rest: bool = False,
    ) -> None: ...

    @overload
    def __init__(
        self, data: T, size: int, *, key: jax.Array | int | None = None, rest: bool = False
    ) -> None: ...

    def __init__(
        self, data: Any, size: int, *, key: jax.Array | int | None = None, rest: bool = False
    ):
        self.indexed = hasattr(data, "with_format")
        self.data = data.with_format("numpy") if self.indexed else data
        counts = {len(data)} if self.indexed else {*map(len, jax.tree.leaves(data))}
        if len(counts) > 1:
            raise WrongBatch(
                f"arrays of {', '.join(map(str, sorted(counts)))} rows",
                why="row i of a batch is row i of each array",
                do="give arrays that have the first axis in common",
            )
        count = max(counts, default=0)
        self.size, self.epoch, self.start = size, 0, 0
        self.share = (0, 1)
        self.shuffle = None if key is None else Shuffle(count, key)
        self.rows = count if rest else count // size * size
        if not self.rows:
            raise NoData(
                f"{count} rows make no batch of {size}",
                why="a batch that is not full is left out",
                do="give more data, a smaller size, or rest=True",
            )

    def set_epoch(self, epoch: int, start: int = 0) -> None:
        """Sets the epoch to iterate next, and how many of its batches to skip.

        Example:
          >>> import numpy as np
          >>> batches = anyjax.train.Batches(np.arange(6), 2)
          >>> batches.set_epoch(1, start=2)
          >>> [batch.tolist() for batch in batches]
          [[4, 5]]
        """
        self.epoch, self.start = epoch, start

    def set_share(self, index: int, count: int) -> None:
        """Takes one of ``count`` equal parts of each batch: the part of one process.

        Raises:
          WrongBatch: a batch cannot be cut into so many.

        Example:
          >>> import numpy as np
          >>> batches = anyjax.train.Batches(np.arange(4), 4)
          >>> batches.set_share(1, 2)
          >>> next(iter(batches)).tolist()
          [2, 3]
        """
        for rows in {self.size, self.rows % self.size or self.size}:
            if rows % count:
                raise WrongBatch(
                    f"a batch of {rows} rows cannot be divided among {count} processes",
                    why="each process gives as many rows as the others",
                    do=f"give a size that is a multiple of {count}, and leave out the rest",
                )
        self.share = (index, count)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def __iter__(self) -> Iterator[T]:
        order = np.arange(self.rows)
        if self.shuffle is not None:
            self.shuffle.set_epoch(self.epoch)
            order = self.shuffle.order()[: self.rows]
        for begin in range(self.start * self.size, self.rows, self.size):
            index, count = self.share
            rows = order[begin : begin + self.size]
            share_size = len(rows) // count
            yield self.rows_at(rows[index * share_size : (index + 1) * share_size])

    def rows_at(self, indices: np.ndarray) -> T:
        """Returns the rows of these numbers, as a batch.

        Example:
          >>> import numpy as np
          >>> anyjax.train.Batches(np.arange(0, 60, 10), 2).rows_at(np.array([5, 0])).tolist()
          [50, 0]
        """
        return self.data[indices] if self.indexed else jax.tree.map(lambda x: x[indices], self.data)


def prefetch(
    batches: Iterable[object], size: int = 2, sharding: jax.sharding.Sharding | None = None
) -> Iterator[Output]:
    """Yields the batches on the device; ``size`` of them are transferred ahead of use.

    Args:
      batches: pytrees; leaves that are no arrays stay what they are.
      size: how many are ahead.
      sharding: where to; the default device without one.

    Example:
      >>> import numpy as np
      >>> [batch.sum().item() for batch in anyjax.train.prefetch([np.ones(2), np.ones(3)])]
      [2.0, 3.0]
    """
    transferred = _transferred(batches, sharding)
    ahead = collections.deque(itertools.islice(transferred, size))
    while ahead:
        batch, error = ahead.popleft()
        if error is not None:
            raise error
        yield batch
        ahead.extend(itertools.islice(transferred, 1))


def _transferred(
    batches: Iterable[PyTree], sharding: jax.sharding.Sharding | None
) -> Iterator[tuple[Any, Exception | None]]:
    """Yields (batch on the device, None), or (None, error) where the source raised."""
    try:
        for batch in batches:
            yield jax.tree.map(lambda x: _put(x, sharding), batch), None
    except Exception as error:
        yield None, error


def _put(leaf: object, sharding: jax.sharding.Sharding | None) -> Any:
    """Returns a leaf on the device. numpy's memory is copied first: loaders write the next batch
    into it, and JAX reads it later, even when told not to share it.
    """
    if not is_local(leaf):
        return leaf  # on a mesh of several processes already
    leaf = leaf.copy() if isinstance(leaf, np.ndarray) else leaf
    return jax.device_put(leaf, sharding) if trees.is_array(leaf) else leaf
