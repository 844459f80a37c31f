"""A potential as a program of JAX, in ASE and OpenMM, without PyTorch."""

import importlib.util

import ase
import jax
import jax.numpy as jnp
import numpy as np
import openmm

import anyjax

assert importlib.util.find_spec("torch") is None


def springs(positions, edge_index):
    vectors = positions[edge_index[0]] - positions[edge_index[1]]
    return ((3 - jnp.linalg.norm(vectors, axis=-1)) ** 2).sum()


number, edges = jax.export.symbolic_shape("number, edges")
shapes = {
    "positions": jax.ShapeDtypeStruct((number, 3), jnp.float32),
    "edge_index": jax.ShapeDtypeStruct((2, edges), jnp.int32),
}
model = anyjax.from_stablehlo(jax.export.export(jax.jit(springs))(**shapes))
options = {"inputs": {name: name for name in shapes}, "platforms": ("cpu",)}
anyjax.export.atoms(model, "springs", cutoff=3.0, species=[1], **options)
potential = anyjax.export.load_atoms("springs")

positions = 2.0 * np.eye(3)
molecule = ase.Atoms("H3", positions=positions, calculator=potential.calculator())
want = 6 * (3 - 8**0.5) ** 2
np.testing.assert_allclose(molecule.get_potential_energy(), want, rtol=1e-4)
system = openmm.System()
for _ in positions:
    system.addParticle(1.0)
system.addForce(potential.openmm_force([1, 1, 1]))
integrator = openmm.VerletIntegrator(0.001)
context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
context.setPositions(positions / 10)
energy = context.getState(getEnergy=True).getPotentialEnergy()._value
np.testing.assert_allclose(energy, want * 96.485332, rtol=1e-4)
print("ok: atoms, load_atoms, ASE, OpenMM")
