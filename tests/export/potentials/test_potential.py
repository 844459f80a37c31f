"""A loaded potential as a JAX function: derivatives, vmap, loops; folders that are none."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from anyjax.errors import BadCheckpoint
from anyjax.export import load_atoms
from tests.models.atoms import CELL, cluster
from tests.tolerance import assert_close

POSITIONS, NUMBERS = cluster(5)


@pytest.fixture(scope="module")
def edges(potential):
    return potential.neighbors(POSITIONS, CELL, capacity=64)


def test_forces_are_the_gradient(potential, edges):
    energy, slope = jax.value_and_grad(potential.energy_fn)(POSITIONS, species=NUMBERS, **edges)
    out = potential.properties(POSITIONS, species=NUMBERS, **edges)
    assert_close(energy, out["energy"], reduction=64)
    assert_close(-slope, out["forces"], reduction=256)
    each = potential.energies_fn(POSITIONS, species=NUMBERS, **edges)
    assert_close(each, out["energies"], reduction=64)


def test_hessian_is_that_of_torch(module, potential, edges):
    real = (edges["edge_index"] < 5).all(0)
    index = torch.tensor(edges["edge_index"][:, real]).long()
    shifts = torch.tensor(edges["shifts"][real] @ CELL)
    energy = lambda r: module(torch.tensor(NUMBERS), r, index, shifts)["energy"]
    want = torch.autograd.functional.hessian(energy, torch.tensor(POSITIONS))
    got = jax.jit(jax.hessian(lambda r: potential.energy_fn(r, species=NUMBERS, **edges)))
    assert_close(got(POSITIONS), want, reduction=1024)


def test_vmap_over_structures(potential):
    structures = [cluster(5, seed) for seed in range(3)]
    lists = [potential.neighbors(r, CELL, True, 64) for r, _ in structures]
    stacked = {k: np.stack([x[k] for x in lists]) for k in lists[0]}
    stacked["species"] = np.stack([z for _, z in structures])
    positions = np.stack([r for r, _ in structures])
    energies = jax.vmap(lambda r, rest: potential.energy_fn(r, **rest))(positions, stacked)
    want = [potential.energy_fn(r, species=z, **x) for (r, z), x in zip(structures, lists)]
    assert_close(energies, np.stack(want), reduction=64)


def test_energy_is_conserved_in_a_scan(potential):
    """100 steps of velocity Verlet in one loop; half the step has a fourth of the error."""
    edges = potential.neighbors(POSITIONS)
    slope = jax.grad(lambda r: potential.energy_fn(r, species=NUMBERS, **edges))
    mass = jnp.asarray(NUMBERS, float)[:, None]

    def total(dt):
        def step(state, _):
            r, v, force = state
            v = v + dt / 2 * force / mass
            r = r + dt * v
            force = -slope(r)
            v = v + dt / 2 * force / mass
            return (r, v, force), (mass * v**2).sum() / 2 + energy(r)

        energy = lambda r: potential.energy_fn(r, species=NUMBERS, **edges)
        start = jnp.asarray(POSITIONS)
        v = 0.05 * np.random.default_rng(0).standard_normal(start.shape)
        _, energies = jax.jit(lambda: jax.lax.scan(step, (start, v, -slope(start)), length=100))()
        return np.ptp(energies)

    assert total(0.2) < 1e-3 and total(0.1) < total(0.2) / 2


@pytest.mark.processes
def test_it_loads_without_torch(potential, edges, tmp_path):
    np.savez(tmp_path / "edges.npz", positions=POSITIONS, species=NUMBERS, **edges)
    code = """
import sys
sys.modules["torch"] = None
import jax, numpy as np, anyjax
jax.config.update("jax_enable_x64", True)
potential = anyjax.export.load_atoms(sys.argv[1])
structure = dict(np.load(sys.argv[2]))
properties = potential.properties(**structure)
print(float(potential.energy_fn(**structure)), float(properties["energy"]))
"""
    argv = [sys.executable, "-c", code, str(potential.folder), str(tmp_path / "edges.npz")]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    want = float(potential.properties(POSITIONS, species=NUMBERS, **edges)["energy"])
    assert_close([float(x) for x in shown], [want, want], reduction=64)


def test_the_program_alone_is_differentiable(potential, edges):
    """What a program in another language loads: a file of jax.export."""
    program = jax.export.deserialize(bytearray((potential.folder / "energy.jax").read_bytes()))
    rest = np.asarray(NUMBERS, np.int32), *(edges[k] for k in ("edge_index", "shifts", "cell"))
    slope = jax.grad(lambda r: program.call(r, *rest)["energy"])(jnp.asarray(POSITIONS))
    out = potential.properties(POSITIONS, species=NUMBERS, **edges)
    assert_close(-slope, out["forces"], reduction=256)


def test_folders_that_are_none(tmp_path, potential):
    with pytest.raises(BadCheckpoint, match=r"no folder of anyjax\.export\.atoms"):
        load_atoms(tmp_path)
    about = json.loads((potential.folder / "atoms.json").read_text())
    for change in ({"format": 0}, {"cutoff": 9.0}):
        (tmp_path / "atoms.json").write_text(json.dumps(about | change))
        with pytest.raises(BadCheckpoint):
            load_atoms(tmp_path)
    (tmp_path / "atoms.json").write_text(json.dumps(about))
    with pytest.raises(BadCheckpoint, match=r"energy\.jax is missing"):
        load_atoms(tmp_path)
    assert "cutoff=3.0" in repr(potential)
