"""The values of a forward pass, in memory as long as they are few, then in files."""

from __future__ import annotations

import itertools
import tempfile
import weakref
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path

import numpy as np

LIMIT = 2**30  # bytes of one forward pass that stay in memory


class Store(MutableMapping[str, list[np.ndarray]]):
    """Arrays by module path, as a dict has them; once they are more than ``limit`` bytes,
    all are mapped from files.

    The files are in a temporary folder that goes when the store does.

    Example:
      >>> import numpy as np
      >>> store = Store()
      >>> store["a"] = [np.ones(2)]
      >>> store["a"][0].sum(), store.size
      (np.float64(2.0), 16)
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = LIMIT if limit is None else limit
        self.arrays: dict[str, Sequence[np.ndarray]] = {}
        self.size = 0
        self._numbers = itertools.count()
        self._folder: tempfile.TemporaryDirectory | None = None

    def __setitem__(self, path: str, arrays: Sequence[np.ndarray]) -> None:
        self.size += sum(x.nbytes for x in arrays)
        self.arrays[path] = [*arrays]
        if self.size > self.limit:
            for name in self.arrays if self._folder is None else (path,):
                self.arrays[name] = [*map(self._file, self.arrays[name])]

    def _file(self, array: np.ndarray) -> np.ndarray:
        if not array.size:
            return array
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="anyjax-verify-")
            weakref.finalize(self, self._folder.cleanup)
        name = Path(self._folder.name) / str(next(self._numbers))
        np.memmap(name, array.dtype, "w+", shape=array.shape)[...] = array
        return np.memmap(name, array.dtype, "r", shape=array.shape)

    def __getitem__(self, path: str) -> list[np.ndarray]:
        return [*self.arrays[path]]

    def __delitem__(self, path: str) -> None:
        del self.arrays[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)
