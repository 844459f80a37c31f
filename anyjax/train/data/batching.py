"""Batch checks: arrays whose structure, dtypes and dimensions do not change between steps."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np

from anyjax import trees
from anyjax.calls.layouts import with_arrays
from anyjax.errors import WrongArguments, WrongBatch
from anyjax.source import Source
from anyjax.typing import PyTree


class BatchSpec(NamedTuple):
    """Structure, dtypes and numbers of dimensions, the same for all batches of a step."""

    structure: Any
    dtypes: tuple[np.dtype, ...]
    dimensions: tuple[int, ...]


def as_arrays(source: Source, batch: PyTree) -> Any:
    """Returns the batch as a pytree of arrays; classes of its containers are registered.

    Raises:
      WrongBatch: a leaf is neither an array nor a number.
    """

    def array(path: Any, leaf: object) -> Any:
        with contextlib.suppress(WrongArguments):
            leaf = source.as_array(leaf)
        numbers = trees.is_array(leaf) and leaf.dtype.kind not in "OSU"
        if not numbers and type(leaf) not in (bool, int, float):
            raise WrongBatch(
                f"batch{jax.tree_util.keystr(path)} holds no numbers: {str(leaf)[:40]!r}",
                where=f"a {type(leaf).__name__}",
                why="a step is a compiled program of arrays",
                do="turn text into ids first, and leave out what the loss does not use",
            )
        return leaf

    return jax.tree_util.tree_map_with_path(array, trees.register(batch))


def check_batch(batch: PyTree, expected: BatchSpec | None, parts: int) -> BatchSpec:
    """Returns the spec of the batch.

    Raises:
      WrongBatch: it is not the ``expected`` one, or the batch cannot be cut into ``parts``.
    """
    leaves, structure = jax.tree.flatten(with_arrays(batch))
    types = [jax.typeof(x) for x in leaves]
    spec = BatchSpec(structure, tuple(t.dtype for t in types), tuple(t.ndim for t in types))
    if parts > 1:
        _check_divisible(batch, parts)
    if expected is not None and spec != expected:
        raise WrongBatch(
            "the batch is of another kind than the first one",
            where=_difference(batch, spec, expected),
            why="a step is compiled for one structure; sizes may change, all else is a mistake",
            do="make all batches alike, or make one step for each kind of batch",
        )
    return spec


def _difference(batch: PyTree, spec: BatchSpec, expected: BatchSpec) -> str:
    """Describes how two specs differ."""
    if spec.structure != expected.structure:
        return f"got {spec.structure}, the first was {expected.structure}"
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(batch)]
    shown = lambda dtype, dimensions: f"{dtype} of {dimensions} dimensions"
    return "; ".join(
        f"batch{path} is {shown(*new)}, was {shown(*old)}"
        for path, new, old in zip(paths, zip(*spec[1:]), zip(*expected[1:]))
        if new != old
    )


def _check_divisible(batch: PyTree, parts: int) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        if np.ndim(leaf) == 0 or len(leaf) % parts:
            raise WrongBatch(
                f"batch{jax.tree_util.keystr(path)} of shape {np.shape(leaf)} cannot be cut into "
                f"{parts} parts",
                why="accumulate cuts the first axis of every array into equal parts",
                do=f"give batches of a multiple of {parts} rows",
            )
