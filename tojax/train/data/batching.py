"""What a step takes as its batch: arrays whose structure, dtypes and dimensions do not change."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from tojax import trees
from tojax.errors import WrongBatch


class Kind(NamedTuple):
    """What all batches of a step have in common."""

    structure: Any
    dtypes: tuple[np.dtype, ...]
    dimensions: tuple[int, ...]


def arrays(source: Any, batch: Any) -> Any:
    """The batch as JAX takes it; classes of its containers are registered.

    Raises:
      WrongBatch: a leaf is neither an array nor a number.
    """
    batch = jax.tree.map(source.as_array, trees.register(batch))
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        numbers = trees.is_array(leaf) and leaf.dtype.kind not in "OSU"
        if not numbers and type(leaf) not in (bool, int, float):
            raise WrongBatch(
                f"batch{jax.tree_util.keystr(path)} holds no numbers: {str(leaf)[:40]!r}",
                where=f"a {type(leaf).__name__}",
                why="a step is a compiled program of arrays",
                do="turn text into ids first, and leave out what the loss does not use",
            )
    return batch


def checked(batch: Any, known: Kind | None, parts: int) -> Kind:
    """The kind of the batch.

    Raises:
      WrongBatch: it is another one than ``known``, or cannot be cut into ``parts``.
    """
    leaves, structure = jax.tree.flatten(batch)
    types = [jax.typeof(x) for x in leaves]
    kind = Kind(structure, tuple(t.dtype for t in types), tuple(t.ndim for t in types))
    if parts > 1:
        _divisible(batch, parts)
    if known is not None and kind != known:
        raise WrongBatch(
            "the batch is of another kind than the first one",
            where=_difference(batch, kind, known),
            why="a step is compiled for one structure; sizes may change, all else is a mistake",
            do="make all batches alike, or make one step for each kind of batch",
        )
    return kind


def _difference(batch: Any, kind: Kind, known: Kind) -> str:
    """Where two kinds differ."""
    if kind.structure != known.structure:
        return f"got {kind.structure}, the first was {known.structure}"
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(batch)]
    shown = lambda dtype, dimensions: f"{dtype} of {dimensions} dimensions"
    return "; ".join(
        f"batch{path} is {shown(*new)}, was {shown(*old)}"
        for path, new, old in zip(paths, zip(*kind[1:]), zip(*known[1:]))
        if new != old
    )


def _divisible(batch: Any, parts: int) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        if np.ndim(leaf) == 0 or len(leaf) % parts:
            raise WrongBatch(
                f"batch{jax.tree_util.keystr(path)} of shape {np.shape(leaf)} cannot be cut into "
                f"{parts} parts",
                why="accumulate cuts the first axis of every array into equal parts",
                do=f"give batches of a multiple of {parts} rows",
            )
