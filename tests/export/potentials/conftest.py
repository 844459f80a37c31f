"""A SchNet that was written once for all tests of a file, in float64."""

import jax
import pytest

import anyjax
from anyjax.export import atoms, load_atoms
from tests.models.atoms import CUTOFF, SPECIES, schnet


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def module(double):
    return schnet()


@pytest.fixture(scope="module")
def potential(module, tmp_path_factory):
    """The SchNet from its folder; it gives energy, energies and forces."""
    folder = tmp_path_factory.mktemp("atoms") / "schnet"
    options = {"cutoff": CUTOFF, "species": SPECIES, "platforms": ("cpu",)}
    return load_atoms(atoms(anyjax.from_torch(module), folder, **options))
