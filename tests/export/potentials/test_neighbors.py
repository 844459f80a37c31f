"""Neighbours by trees are those by all images of all pairs."""

import itertools

import numpy as np
import pytest

from anyjax.export.potentials.neighbors import neighbors

CELL = np.array([[2.1, 0.3, 0.0], [0.9, 3.3, 0.2], [0.1, -0.7, 4.0]])


def by_all_pairs(positions, cutoff, cell, periodic):
    reach = [range(-7, 8) if x else (0,) for x in periodic]
    pairs = set()
    for image in itertools.product(*reach):
        vectors = positions[None] + np.array(image) @ cell - positions[:, None]
        for i, j in zip(*np.nonzero(np.linalg.norm(vectors, axis=-1) <= cutoff)):
            if i != j or any(image):
                pairs.add((i, j, *image))
    return pairs


@pytest.mark.parametrize("periodic", [(True,) * 3, (False,) * 3, (True, False, True)])
@pytest.mark.parametrize("cutoff", [0.5, 2.0, 4.5])
def test_all_pairs(periodic, cutoff):
    """Atoms lie inside and outside of the cell."""
    positions = np.random.default_rng(0).normal(0, 2, (5, 3))
    edges, shifts = neighbors(positions, cutoff, CELL, periodic)
    got = {(*edge, *shift) for edge, shift in zip(edges.T.tolist(), shifts.astype(int).tolist())}
    assert len(got) == edges.shape[1]
    assert got == by_all_pairs(positions, cutoff, CELL, periodic)


def test_no_neighbours():
    edges, shifts = neighbors(np.zeros((1, 3)), 1.0, np.eye(3), False)
    assert edges.shape == (2, 0) and shifts.shape == (0, 3)
