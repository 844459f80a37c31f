"""Outputs of models by name, position and shape."""

import jax.numpy as jnp
import numpy as np
import pytest

import anyjax
from anyjax.errors import WrongArguments
from anyjax.export.potentials.quantities import arguments_of, of_structure, results_of

ENERGIES, FORCES = jnp.arange(4.0), jnp.ones((4, 3))


@pytest.mark.parametrize(
    ("out", "outputs", "names"),
    [
        (jnp.ones(()), None, "energy"),
        (jnp.ones((1, 1)), None, "energy"),
        (ENERGIES, None, "energy energies"),
        (ENERGIES[:, None], None, "energy energies"),
        ({"total_energy": jnp.ones(1), "F": FORCES}, None, "energy forces"),
        ({"node_energy": ENERGIES, "forces": FORCES}, None, "energy energies forces"),
        ((FORCES, jnp.ones(())), {"energy": 1, "forces": 0}, "energy forces"),
        ({"a": {"b": ENERGIES}}, {"energies": "a_b"}, "energy energies"),
    ],
)
def test_results(out, outputs, names):
    results = results_of(out, outputs, 4, "net")
    assert sorted(results) == sorted(names.split()) and results["energy"].shape == ()
    if "energies" in results:
        assert results["energy"] == 6 and results["energies"].shape == (4,)


@pytest.mark.parametrize(
    ("out", "outputs"),
    [
        (FORCES, None),
        ({"loss": jnp.ones(())}, None),
        ({"energy": jnp.ones(()), "forces": FORCES[:3]}, None),
        ({"energy": jnp.ones(())}, {"energy": "e"}),
        ({"energy": jnp.ones(()), "dipole": FORCES}, {"energy": "energy", "dipole": "dipole"}),
    ],
)
def test_outputs_that_are_not_understood(out, outputs):
    with pytest.raises(WrongArguments, match="net gives no"):
        results_of(out, outputs, 4, "net")


def test_quantities_of_padding():
    structure = {
        "positions": jnp.eye(3),
        "species": jnp.array([8, 1, 1], jnp.int32),
        "edge_index": jnp.array([[0, 3], [1, 3]], jnp.int32),
        "shifts": jnp.array([[0.0, 0, 1], [5, 5, 5]]),
        "cell": jnp.diag(jnp.array([2.0, 3, 4])),
    }
    out = of_structure(structure, 1.5, (1, 8))
    np.testing.assert_array_equal(out["types"], [1, 0, 0])
    np.testing.assert_array_equal(out["edge_mask"], [True, False])
    np.testing.assert_allclose(out["vectors"], [[-1, 1, 4], [4.5, 0, 0]])
    np.testing.assert_allclose(out["distances"], [np.sqrt(18), 4.5])


def test_arguments_by_usual_names():
    model = anyjax.from_torch(lambda z, R, edge_vec, other=None: R.sum())
    assert arguments_of(model, None)({"species": 1, "positions": 2, "vectors": 3}) == {
        "z": 1, "R": 2, "edge_vec": 3,
    }  # fmt: skip
