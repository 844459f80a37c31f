"""Structures that do not fit, and edges in other forms."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from anyjax.errors import AnyjaxError, WrongArguments, WrongValue
from tests.models.atoms import CELL, cluster
from tests.tolerance import assert_close

POSITIONS, NUMBERS = cluster(5)
BOX = np.diag([6.1, 6.5, 7.0])


@pytest.fixture(scope="module")
def edges(potential):
    return potential.neighbors(POSITIONS, CELL)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"species": None}, "species is missing"),
        ({"species": NUMBERS[:4]}, "positions is "),
        ({"species": NUMBERS.astype(float)}, "species is float64"),
        ({"species": [1, 1, 1, 1, 26]}, "the species 26"),
        ({"edge_index": None}, "edge_index is missing"),
        ({"edge_index": np.zeros((2, 3, 1), int)}, "edge_index is "),
        ({"shifts": np.zeros((3, 3))}, "shifts is "),
        ({"cell": np.ones(3)}, r"cell is float64\[3\]"),
        ({"cell": None}, "cell is missing"),
        ({"shifts": None}, "without shifts"),
        ({"charges": np.ones(5)}, "it does not take charges"),
    ],
)
def test_what_is_wrong(potential, edges, change, match):
    with pytest.raises(AnyjaxError, match=match) as caught:
        potential.energy_fn(POSITIONS, **({"species": NUMBERS, **edges} | change))
    assert isinstance(caught.value, (WrongArguments, WrongValue))
    assert len(str(caught.value).splitlines()) == 4  # the last one names its page


def test_positions_of_another_shape(potential, edges):
    with pytest.raises(WrongArguments, match=r"positions is float64\[15\]"):
        potential.energy_fn(POSITIONS.ravel(), species=NUMBERS, **edges)


def test_a_species_that_is_traced_gives_nan(potential, edges):
    energy = jax.jit(lambda z: potential.energy_fn(POSITIONS, species=z, **edges))
    assert np.isfinite(energy(NUMBERS)) and np.isnan(energy(NUMBERS + 25))


def test_nearest_images_and_a_list_of_jax_md(potential):
    edges = potential.neighbors(POSITIONS, BOX)
    want = potential.energy_fn(POSITIONS, species=NUMBERS, **edges)
    neighbor = SimpleNamespace(
        idx=np.pad(edges["edge_index"], ((0, 0), (0, 4)), constant_values=5),
        format=SimpleNamespace(name="Sparse"),
    )
    energy = potential.energy_fn(POSITIONS, species=NUMBERS, neighbor=neighbor, cell=BOX)
    assert_close(energy, want, reduction=64)
    neighbor.format.name = "OrderedSparse"
    with pytest.raises(WrongArguments, match="OrderedSparse, not Sparse"):
        potential.energy_fn(POSITIONS, species=NUMBERS, neighbor=neighbor, cell=BOX)
    step = jax.jit(lambda cell: potential.energy_fn(POSITIONS, species=NUMBERS, cell=cell,
                                                    edge_index=edges["edge_index"]))  # fmt: skip
    with pytest.raises(WrongArguments, match="the cell is traced"):
        step(BOX)


def test_one_atom_has_no_edges(potential):
    edges = potential.neighbors(np.zeros((1, 3)))
    assert edges["edge_index"].shape == (2, 0)
    out = potential.properties(np.zeros((1, 3)), species=[6], **edges)
    assert np.isfinite(out["energy"]) and not out["forces"].any()
