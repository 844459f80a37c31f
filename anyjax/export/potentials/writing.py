"""The folder of a model of atoms: its programs, and what a simulator must know about them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.dtypes import canonical, is_float
from anyjax.errors import DataDependent, NotNumbers, Unsupported, WrongArguments
from anyjax.export.flat import TOLERANCE, difference
from anyjax.export.potentials.functions import Functions
from anyjax.export.potentials.neighbors import neighbors
from anyjax.export.potentials.quantities import Inputs, Outputs, Structure, arguments_of
from anyjax.model import Model
from anyjax.private_names import Inconclusive
from anyjax.saved.checksum import Json, signed
from anyjax.saved.folder import check_others, digest, whole
from anyjax.saved.programs import PLATFORMS, check_platforms, exported
from anyjax.takes_model import takes_model

FORMAT = 1
ABOUT = "atoms.json"
PROGRAMS = ("energy", "properties")
ENERGIES = {"eV": 1.0, "Hartree": 27.211386245981, "kcal/mol": 0.0433641153087705,
            "kJ/mol": 0.0103642696562622}  # fmt: skip
LENGTHS = {"Angstrom": 1.0, "Bohr": 0.529177210544, "nm": 10.0}
# Arrays of a structure, in the order of the programs' arguments.
SHAPES = {"positions": "atoms, 3", "species": "atoms", "edge_index": "2, edges",
          "shifts": "edges, 3", "cell": "3, 3"}  # fmt: skip


@takes_model
def atoms(
    model: Model,
    folder: str | os.PathLike[str],
    *,
    cutoff: float = 0.0,
    species: Sequence[int] = (),
    inputs: Inputs = None,
    outputs: Outputs = None,
    units: tuple[str, str] = ("eV", "Angstrom"),
    dtype: jax.typing.DTypeLike | None = None,
    platforms: Sequence[str] = PLATFORMS,
) -> Path:
    """Writes a model of atoms as programs for simulators, for any number of atoms and edges.

    The folder has ``energy.jax`` and ``properties.jax``, programs of ``jax.export`` with the
    weights in them, and ``atoms.json``. Their arguments are positions [atoms, 3], species int32
    [atoms], edge_index int32 [2, edges] with both directions of each pair, and, where the model
    uses them, shifts [edges, 3] in cell vectors and cell [3, 3]: the vector of an edge is
    ``positions[edge_index[1]] - positions[edge_index[0]] + shifts @ cell``. ``energy.jax`` gives
    energy (), and energies [atoms] where the model has them; ``properties.jax`` also forces
    [atoms, 3] and, with a cell, stress [3, 3]. Forces are the model's own where it gives some, as
    by ``torch.autograd.grad``, else the negative gradient; the stress is the derivative by strain.

    Edges with an index of no atom are padding. Where the model is not zero at its cutoff, or a
    species is not among ``species``, all results are NaN.

    Args:
      model: a Model; its evaluation mode is written.
      folder: where to; it appears whole or not at all.
      cutoff: the largest distance of an edge, in the units of ``units``; needed.
      species: needed, too: the atomic numbers that the model knows; ``types`` are places in this
        list.
      inputs: which of the model's arguments is which quantity: ``{"pos": "positions"}``; or a
        function of a dict of all quantities that returns the arguments by name. Quantities are
        positions, species, types, edge_index, shifts (now in units of length), unit_shifts, cell,
        vectors, distances, batch (zeros) and edge_mask. By default arguments have usual names.
      outputs: fields, keys or positions of energy, energies and forces in what the model gives.
      units: of energy ("eV", "Hartree", "kcal/mol", "kJ/mol") and length ("Angstrom", "Bohr",
        "nm").
      dtype: of positions and weights; that of the weights by default.
      platforms: what the programs run on.

    Returns:
      The folder.

    Raises:
      WrongArguments: cutoff or species are missing or impossible, a unit is none, it is not clear
        what the positions or the energy are, or the folder holds something else.
      WrongValue: a quantity or a platform that is none.
      NotNumbers: the energy of a small cluster is not finite.
      Unsupported: the model asks for a number of atoms or edges, or writes to its state.

    Example:
      >>> import numpy as np, tempfile, torch
      >>> def energy(pos, edge_index):
      ...     r = (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=-1)
      ...     return ((3 - r) ** 2 * (r < 3)).sum()
      >>> folder = tempfile.mkdtemp() + "/springs"
      >>> path = anyjax.export.atoms(anyjax.from_torch(energy), folder, cutoff=3.0, species=[1])
      >>> springs = anyjax.export.load_atoms(path)
      >>> r, edges = np.eye(3, dtype=np.float32), np.array([[0, 1], [1, 0]])
      >>> round(float(springs.energy_fn(r, species=[1, 1, 1], edge_index=edges)), 3)
      5.029
    """
    _check(cutoff, species, units)
    check_platforms(platforms)
    target = Path(folder).expanduser()
    if (target / ABOUT).is_file():
        check_others(target, {ABOUT, *(f"{x}.jax" for x in PROGRAMS)})
    numbers = tuple(map(int, species))
    model, precision = _converted(model, dtype)
    functions = Functions(model, arguments_of(model, inputs), outputs, float(cutoff), numbers)
    structure = probe(functions.cutoff, numbers, precision, periodic=True)
    if not functions.uses_cell(structure):
        structure = probe(functions.cutoff, numbers, precision, periodic=False)
    functions, results, measured = tried(functions, structure)
    about = {"format": FORMAT, "jax": jax.__version__, "platforms": [*platforms],
             "name": model.source.name, "dtype": precision.name, "cutoff": functions.cutoff,
             "species": numbers, "units": {"energy": units[0], "length": units[1]},
             "inputs": {k: f"{x.dtype}[{SHAPES[k]}]" for k, x in structure.items()},
             **measured}  # fmt: skip
    with whole(target, ABOUT) as scratch:
        for name in PROGRAMS:
            program = _program(getattr(functions, name), structure, platforms)
            _compare(name, program, structure, results)
            order = int(name == "energy")  # how often a program by itself can be differentiated
            (scratch / f"{name}.jax").write_bytes(program.serialize(vjp_order=order))
        about["sha256"] = {file.name: digest(file) for file in sorted(scratch.iterdir())}
        (scratch / ABOUT).write_text(json.dumps(signed(about), indent=1))
    return target


def _check(cutoff: float, species: Sequence[int], units: tuple[str, str]) -> None:
    is_right = 0 < cutoff < float("inf") and len(species) and all(0 < x < 119 for x in species)
    if not is_right or units[0] not in ENERGIES or units[1] not in LENGTHS:
        raise WrongArguments(
            f"atoms with cutoff={cutoff}, species={species}, units={units}",
            why="simulators look for neighbours within a cutoff, and must not use atoms that the "
            "model was not trained on",
            do="give cutoff=5.0, species=[1, 6, 8] (atomic numbers), and units= one of "
            f"{', '.join(ENERGIES)} with one of {', '.join(LENGTHS)}",
        )


def _converted(model: Model, dtype: jax.typing.DTypeLike | None) -> tuple[Model, np.dtype]:
    """Returns the model in evaluation mode with weights of the dtype, and that dtype."""
    floats = [x.dtype for x in model.params.values() if is_float(x.dtype)]
    default = jnp.result_type(*floats) if floats else float
    precision = canonical(default if dtype is None else dtype)
    cast = lambda x: x.astype(precision) if dtype is not None and is_float(x.dtype) else x
    return jax.tree.map(cast, model.eval()), precision


def probe(cutoff: float, species: Sequence[int], dtype: np.dtype, periodic: bool) -> Structure:
    """Returns eight atoms with all edges within the cutoff, in a small cell or without one."""
    corners = np.indices((2, 2, 2)).reshape(3, -1).T
    jitter = np.random.default_rng(0).uniform(-0.05, 0.05, (8, 3))
    positions = cutoff * (0.45 * corners + jitter)
    cell = cutoff * (0.95 * np.eye(3) + 0.05 * np.eye(3, k=1))
    edges, shifts = neighbors(positions, cutoff, cell, periodic)
    arrays: list[np.ndarray] = [positions, np.resize(species, 8), edges, shifts, cell]
    pairs = zip([*SHAPES][: 5 if periodic else 3], arrays)
    return {k: jnp.asarray(x, dtype if x.dtype.kind == "f" else np.int32) for k, x in pairs}


def tried(functions: Functions, structure: Structure) -> tuple[Functions, Structure, Json]:
    """Runs the model on a structure, with and without padding.

    Returns:
      the functions, which know whether padding is possible, the results, and entries of
      ``atoms.json``: whether it is, the names of results, whether forces are the gradient.

    Raises:
      NotNumbers: a result is not finite.
    """
    run = jax.jit(functions.derivatives)
    slope, results = run(structure)
    want = [np.asarray(x) for x in jax.tree.leaves((slope, results))]
    if not all(np.isfinite(x).all() for x in want):
        raise NotNumbers(
            f"energy, forces or stress of {functions.model.source.name} are not finite",
            why=f"eight atoms at {0.45 * functions.cutoff:g} from each other, tried before export",
            do="look at roots and divisions by zero in forward, and at the cutoff",
        )
    widths = {"edge_index": ((0, 0), (0, 2)), "shifts": ((0, 2), (0, 0))}
    fill = lambda k, x: jnp.pad(x, widths[k], constant_values=-1) if k in widths else x
    got = jax.tree.leaves(run({k: fill(k, x) for k, x in structure.items()}))
    rounding = 1e3 * float(jnp.finfo(structure["positions"].dtype).eps)
    padded = difference(want, got) < rounding
    results = {"forces": -slope} | results
    conservative = difference([want[0]], [-results["forces"]]) < rounding
    measured = {"outputs": sorted(results), "padding": padded, "conservative": conservative}
    return replace(functions, padded=padded), results, measured


def _program(
    function: Callable[[Structure], Any], structure: Structure, platforms: Sequence[str]
) -> jax.export.Exported:
    """Exports a function of the arrays of a structure, in their order."""
    scope = jax.export.SymbolicScope()
    shapes = {k: jax.export.symbolic_shape(SHAPES[k], scope=scope) for k in structure}
    specs = [jax.ShapeDtypeStruct(shapes[k], x.dtype) for k, x in structure.items()]
    run = lambda *arrays: function(dict(zip(structure, arrays)))
    try:
        return exported(run, platforms)(*specs)
    except (DataDependent, Inconclusive) as error:
        raise Unsupported(
            "the model's code depends on the number of atoms or edges",
            where=getattr(error, "where", ""),
            why=str(error).partition("\n")[0][:300],
            do="write it without decisions by sizes; padding and masks are made before the call",
        ) from error


def _compare(
    name: str, program: jax.export.Exported, structure: Structure, results: Structure
) -> None:
    """Raises Unsupported if the program computes something else, where it runs on this machine."""
    backend = jax.default_backend()
    if {"gpu": "cuda"}.get(backend, backend) not in program.platforms:
        return
    out = jax.jit(program.call)(*structure.values())
    error = difference([np.asarray(results[k]) for k in out], [*out.values()])
    if not error <= TOLERANCE[4]:
        raise Unsupported(
            f"{name}: the program differs from the model by {error:.1e} of the largest value",
            why="sizes that are not known change what is computed",
            do="write forward without decisions by the number of atoms or edges",
        )
