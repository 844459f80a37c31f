"""Edges between atoms that are nearer than a cutoff, in a cell or without one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from scipy.spatial import cKDTree

Flags: TypeAlias = bool | Sequence[bool] | np.ndarray  # of three cell vectors, or all of them


def neighbors(
    positions: np.ndarray, cutoff: float, cell: np.ndarray, periodic: Flags
) -> tuple[np.ndarray, np.ndarray]:
    """Returns all pairs within the cutoff, both directions of each.

    Args:
      positions: [atoms, 3], in the cell or outside of it.
      cutoff: the largest distance.
      cell: [3, 3], a vector in each row.
      periodic: along which of these vectors the structure repeats.

    Returns:
      edge_index int32 [2, edges] and shifts [edges, 3], in cell vectors: an edge is
      ``positions[edge_index[1]] - positions[edge_index[0]] + shifts @ cell``.

    Example:
      >>> edges, shifts = neighbors(np.zeros((1, 3)), 1.1, np.eye(3), (True, False, False))
      >>> edges.tolist(), shifts.tolist()
      ([[0, 0], [0, 0]], [[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    """
    inverse = np.linalg.inv(cell)
    home = np.where(periodic, np.floor(positions @ inverse), 0)  # each atom's own cell
    inside = positions - home @ cell
    counts = np.where(periodic, np.ceil(cutoff * np.linalg.norm(inverse, axis=0)), 0).astype(int)
    ranges = [range(-n, n + 1) for n in counts]
    images = np.array([*itertools.product(*ranges)], float)
    moved = (inside[None] + (images @ cell)[:, None]).reshape(-1, 3)
    pairs = cKDTree(inside).query_ball_tree(cKDTree(moved), cutoff)
    starts = np.repeat(np.arange(len(pairs)), [len(x) for x in pairs])
    ends = np.array([*itertools.chain.from_iterable(pairs)], int)
    image, ends = np.divmod(ends, len(positions))
    is_self = (starts == ends) & ~images[image].any(1)
    starts, ends, image = starts[~is_self], ends[~is_self], image[~is_self]
    shifts = images[image] + home[starts] - home[ends]
    return np.stack([starts, ends]).astype(np.int32), shifts
