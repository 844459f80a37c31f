"""Ragged samples as batches of a few shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anyjax.errors import WrongBatch, WrongValue
from anyjax.train.data.batches import numpy_collate


def bucket(sizes: Sequence[int], *, mask: str | None = None, **pads: Any) -> Bucket:
    """Makes a collate function that pads the first axis of samples to the smallest size that fits.

    A step is compiled once for each shape, so at most ``len(sizes)`` times where all batches have
    the same number of rows; ``step.compilations`` and ``fit``'s bar show how often it was.

    Args:
      sizes: the lengths that batches may have.
      mask: the name of an entry to add, bool [rows, size], False where a row is padded.
      **pads: names of the entries to pad, with the value to pad with; without any, all that have an
        axis, with zeros.

    Returns:
      The function, of a list of dicts. ``shapes`` counts the sizes it gave so far.

    Raises:
      WrongBatch: by the function: a sample is longer than the largest size.

    Example:
      >>> import numpy as np
      >>> collate = anyjax.train.bucket([4, 8], ids=0, labels=-100)
      >>> batch = collate([{"ids": [5, 6], "labels": [5, 6]}, {"ids": [7], "labels": [7]}])
      >>> batch["labels"].tolist(), dict(collate.shapes)
      ([[5, 6, -100, -100], [7, -100, -100, -100]], {4: 1})
    """
    return Bucket(sizes, mask, pads)


class Bucket:
    """The collate function that ``bucket`` returns."""

    def __init__(self, sizes: Sequence[int], mask: str | None, pads: Mapping[str, object]):
        if not sizes or min(sizes) < 1:
            raise WrongValue(
                f"sizes={list(sizes)}",
                why="batches are padded to one of them",
                do="give lengths, such as [64, 128, 256]",
            )
        self.sizes, self.mask, self.pads = sorted(sizes), mask, dict(pads)
        self.shapes: Counter[int] = Counter()

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        rows = [{k: np.asarray(v) for k, v in sample.items()} for sample in samples]
        pads = self.pads or {k: 0 for k, v in rows[0].items() if v.ndim}
        if missing := pads.keys() - rows[0].keys():
            raise WrongBatch(
                f"samples have no {', '.join(sorted(missing))}",
                why=f"they have {', '.join(rows[0])}",
                do="name entries of the samples in bucket(sizes, name=value)",
            )
        lengths = [max(len(row[k]) for k in pads) for row in rows]
        size = next((n for n in self.sizes if n >= max(lengths)), None)
        if size is None:
            raise WrongBatch(
                f"a sample of length {max(lengths)}",
                why=f"the largest size is {self.sizes[-1]}",
                do="give a larger one, or cut the samples",
            )
        self.shapes[size] += 1
        for row, length in zip(rows, lengths):
            if self.mask is not None:
                row[self.mask] = np.arange(size) < length
            row |= {k: _pad(row[k], size, value) for k, value in pads.items()}
        return numpy_collate(rows)


def _pad(array: np.ndarray, size: int, value: Any) -> np.ndarray:
    if not array.size and array.dtype == np.float64:  # of an empty list, which has no dtype
        array = array.astype(np.asarray(value).dtype)
    widths = [(0, size - len(array)), *[(0, 0)] * (array.ndim - 1)]
    return np.pad(array, widths, constant_values=value)
