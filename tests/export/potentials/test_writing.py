"""Folders of models of atoms: what torch computes, for any size, and what is refused."""

import json

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import NotNumbers, Unsupported, WrongArguments
from anyjax.export import atoms, load_atoms
from tests.models.atoms import CELL, CUTOFF, SPECIES, Springs, cluster, schnet
from tests.tolerance import assert_close

CPU = {"platforms": ("cpu",)}
OPTIONS = {"cutoff": CUTOFF, "species": SPECIES, **CPU}


def by_torch(module, positions, species, edges, strain=None):
    """The module's outputs; positions and cell are deformed by a strain."""
    deformed = torch.eye(3).double() if strain is None else torch.eye(3).double() + strain
    shifts = ()
    if "cell" in edges:
        shifts = (torch.tensor(edges["shifts"] @ edges["cell"]) @ deformed,)
    index = torch.tensor(edges["edge_index"]).long()
    return module(torch.tensor(species), torch.tensor(positions) @ deformed, index, *shifts)


@pytest.mark.parametrize("number", [1, 2, 5, 17])
def test_any_number_of_atoms_and_edges(number, module, potential):
    positions, species = cluster(number, seed=number)
    edges = potential.neighbors(positions)
    out = potential.properties(positions, species=species, **edges)
    want = by_torch(module, positions, species, edges)
    for name in ("energy", "energies", "forces"):
        assert_close(out[name], want[name].detach(), reduction=64)


def test_stress_is_the_derivative_by_strain(module, potential):
    positions, species = cluster(9)
    edges = potential.neighbors(positions, CELL)
    strain = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    want = by_torch(module, positions, species, edges, strain)
    (slope,) = torch.autograd.grad(want["energy"], strain)
    out = potential.properties(positions, species=species, **edges)
    volume = abs(np.linalg.det(CELL))
    assert_close(out["stress"], (slope + slope.T) / 2 / volume, reduction=1024)
    assert_close(out["forces"], want["forces"].detach(), reduction=128)
    assert abs(out["stress"]).max() > 1e-3


def test_padding_changes_nothing(potential):
    positions, species = cluster(9)
    edges, padded = (potential.neighbors(positions, CELL, True, n) for n in (0, 200))
    assert padded["edge_index"].shape == (2, 200) and (padded["edge_index"] == 9).any()
    out, again = (potential.properties(positions, species=species, **x) for x in (edges, padded))
    assert_close(again, out, reduction=128)


def test_a_model_that_counts_padding_gives_nan_for_it(tmp_path):
    """Springs have no cutoff: what would be a wrong number is none."""
    model = anyjax.from_torch(Springs())
    springs = load_atoms(atoms(model, tmp_path / "a", cutoff=2.0, species=[1], **CPU))
    assert not springs.about["padding"] and "cell" not in springs.about["inputs"]
    positions, species, edges = np.eye(3), np.ones(3, int), np.array([[0, 1], [1, 0]])
    energy = lambda edges: springs.energy_fn(positions, species=species, edge_index=edges)
    assert_close(energy(edges), model(positions.astype("f"), edges), reduction=4)
    assert np.isnan(jax.jit(energy)(np.array([[0, 1, 3], [1, 0, 3]])))
    with pytest.raises(WrongArguments, match="counts edges at any distance"):
        energy(np.array([[0, 1, 3], [1, 0, 3]]))
    with pytest.raises(Exception, match="a periodic cell for Springs"):
        springs.neighbors(positions, CELL)


def test_a_molecule_has_no_edges_to_images(tmp_path):
    """Without shifts an edge to an image of the same atom would have the length zero."""
    coulomb = lambda pos, edge_index: 1 / (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)
    model = anyjax.from_torch(lambda pos, edge_index: coulomb(pos, edge_index).sum())
    charges = load_atoms(atoms(model, tmp_path / "a", cutoff=2.0, species=[1], **CPU))
    out = charges.properties(np.eye(3), species=[1, 1, 1], **charges.neighbors(np.eye(3)))
    assert_close(out["energy"], 6 / 2**0.5, reduction=6)


def test_forces_by_the_gradient_where_the_model_gives_none(tmp_path):
    model = anyjax.from_torch(schnet(layers=1, gives="energy"))
    silent = load_atoms(atoms(model, tmp_path / "a", **OPTIONS))
    assert silent.about["outputs"] == ["energy", "forces", "stress"]
    positions, species = cluster(5)
    edges = silent.neighbors(positions)
    out = silent.properties(positions, species=species, **edges)
    want = by_torch(schnet(layers=1), positions, species, edges)
    assert_close(out["forces"], want["forces"].detach(), reduction=128)


def test_the_model_s_own_forces_are_what_is_written(tmp_path):
    def halved(pos, edge_index):
        energy = (pos[edge_index[0]] - pos[edge_index[1]]).pow(2).sum()
        return energy, torch.ones_like(pos)

    model = anyjax.from_torch(halved)
    options = {"cutoff": 2.0, "species": [1], "outputs": {"energy": 0, "forces": 1}}
    direct = load_atoms(atoms(model, tmp_path / "a", **options, **CPU))
    assert not direct.about["conservative"]
    out = direct.properties(np.eye(3), species=[1, 1, 1], edge_index=np.array([[0], [1]]))
    assert_close(out, {"energy": 2.0, "forces": np.ones((3, 3))})


def test_inputs_by_a_function_of_quantities(tmp_path):
    """A model of one dict, as SchNetPack has it, and of places in the list of species."""

    def energy(data):
        weights = torch.tensor([1.0, 10.0], dtype=torch.float64)
        return {"E": (weights[data["types"]] * data["_batch"].add(1)).sum() + data["r"].sum() * 0}

    inputs = lambda q: {"data": {"types": q["types"], "r": q["distances"], "_batch": q["batch"]}}
    model = anyjax.from_torch(energy)
    options = {"cutoff": 2.0, "species": [8, 1], "inputs": inputs, "outputs": {"energy": "E"}}
    counted = load_atoms(atoms(model, tmp_path / "a", dtype="float64", **options, **CPU))
    edges = counted.neighbors(np.zeros((1, 3)))
    assert counted.energy_fn(np.eye(3), species=[8, 1, 1], edge_index=edges["edge_index"]) == 21


def test_float32(tmp_path):
    with jax.enable_x64(False):
        model = anyjax.from_torch(schnet(layers=1).float())
        single = load_atoms(atoms(model, tmp_path / "a", **OPTIONS))
        assert single.about["dtype"] == "float32" and single.about["padding"]
        positions, species = cluster(5)
        edges = single.neighbors(positions, CELL, capacity=99)
        out = single.properties(positions, species=species, **edges)
    double = anyjax.from_torch(schnet(layers=1))
    want = load_atoms(atoms(double, tmp_path / "b", **OPTIONS)).properties
    assert_close(out, want(positions, species=species, **edges), reduction=256)
    with jax.enable_x64(False), pytest.raises(Exception, match="computes in float64"):
        load_atoms(tmp_path / "b")


def test_the_folder_is_that_of_atoms(tmp_path, potential):
    files = {file.name for file in potential.folder.iterdir()}
    assert files == {"atoms.json", "energy.jax", "properties.jax"}
    about = json.loads((potential.folder / "atoms.json").read_text())
    assert about["inputs"]["shifts"] == "float64[edges, 3]" and about["conservative"]
    assert about["units"] == {"energy": "eV", "length": "Angstrom"}
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(WrongArguments, match="holds something else"):
        atoms(anyjax.from_torch(Springs()), tmp_path, cutoff=2.0, species=[1], **CPU)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"species": [1]}, "cutoff=0.0"),
        ({"cutoff": 3.0}, r"species=\(\)"),
        ({"cutoff": 3.0, "species": []}, r"species=\[\]"),
        ({"cutoff": -1.0, "species": [1]}, "cutoff=-1"),
        ({"cutoff": 3.0, "species": [1], "units": ("eV", "meter")}, "meter"),
        ({"cutoff": 3.0, "species": [1], "outputs": {"energy": "e"}}, "gives no energy"),
        ({"cutoff": 3.0, "species": [1], "inputs": {"pos": "place"}}, "inputs= names place"),
    ],
)
def test_what_is_missing(options, match, tmp_path):
    with pytest.raises(anyjax.errors.AnyjaxError, match=match) as caught:
        atoms(anyjax.from_torch(Springs()), tmp_path / "a", **options, **CPU)
    assert 3 <= len(str(caught.value).splitlines()) <= 5
    assert not (tmp_path / "a").exists()


def test_models_that_are_refused(tmp_path):
    options = {"cutoff": 2.0, "species": [1], **CPU}
    refused = lambda function: atoms(anyjax.from_torch(function), tmp_path / "a", **options)
    with pytest.raises(WrongArguments, match=r"which argument of .* is positions"):
        refused(lambda x: x.sum())
    with pytest.raises(WrongArguments, match="gives no energy that is understood: output"):
        refused(lambda pos: pos)
    with pytest.raises(NotNumbers, match="not finite"):
        refused(lambda pos: (pos[0] - pos[0]).norm().log())
    with pytest.raises(Unsupported, match="number of atoms or edges"):
        refused(lambda pos: sum(row.sum() for row in pos))
    with pytest.raises(WrongArguments, match="atoms of a Linear"):
        atoms(torch.nn.Linear(3, 1), tmp_path / "a", **options)
