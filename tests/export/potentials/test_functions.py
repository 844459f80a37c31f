"""Training on forces, which needs second derivatives by weights, beside torch."""

import jax
import numpy as np
import torch

import anyjax
from anyjax.export.potentials.functions import Functions
from anyjax.export.potentials.quantities import arguments_of
from tests.models.atoms import CUTOFF, SPECIES, cluster
from tests.tolerance import assert_close

POSITIONS, NUMBERS = cluster(5)
STARTS, ENDS = np.nonzero(~np.eye(5, dtype=bool))
EDGES = np.stack([STARTS, ENDS])
TARGET = np.random.default_rng(0).standard_normal((5, 3))


def test_gradients_of_a_loss_of_forces(module):
    model = anyjax.from_torch(module)

    def loss(params):
        out = model.apply(params, NUMBERS, POSITIONS, EDGES)
        return ((out["forces"] - TARGET) ** 2).sum() + out["energy"] ** 2

    value, grads = jax.jit(jax.value_and_grad(loss))(model.params)
    out = module(*map(torch.tensor, (NUMBERS, POSITIONS, EDGES)))
    want = ((out["forces"] - torch.tensor(TARGET)) ** 2).sum() + out["energy"] ** 2
    module.zero_grad()
    want.backward()
    assert_close(value, want.detach(), reduction=256)
    for name, parameter in module.named_parameters():
        assert_close(grads[name], parameter.grad, reduction=4096)


def test_properties_and_cells(module):
    model = anyjax.from_torch(module)
    functions = Functions(model, arguments_of(model, None), None, CUTOFF, SPECIES)
    arrays = {"positions": POSITIONS, "species": NUMBERS.astype("i4"), "edge_index": EDGES}
    structure = {k: jax.numpy.asarray(x) for k, x in arrays.items()}
    assert functions.uses_cell(structure)
    out = jax.jit(functions.properties)(structure)
    slope, results = jax.jit(functions.derivatives)(structure)
    assert_close(out["forces"], -slope, reduction=256)
    assert {*results} == {"energy", "energies", "forces"}
    unknown = structure | {"species": structure["species"].at[2].set(9)}
    energies = jax.jit(functions.energy)(unknown)
    assert {*energies} == {"energy", "energies"} and np.isnan(energies["energy"])
