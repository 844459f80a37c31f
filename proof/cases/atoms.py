"""Force fields: energies, and forces that the model takes by its own ``autograd.grad``."""

import typing

import torch

from proof.cases import Example, cases

CUTOFF = 4.0


def molecule(others: bool, kinds: int = 2) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns kinds of atoms, their places, and all ordered pairs of them."""
    atoms = 6 if others else 5
    pairs = torch.cartesian_prod(torch.arange(atoms), torch.arange(atoms))
    edges = pairs[pairs[:, 0] != pairs[:, 1]].T.contiguous()
    return torch.randint(kinds, (atoms,)), 2.5 * torch.rand(atoms, 3), edges


SIZES = {"kinds": "atoms", "pos": "atoms, _", "edges": "_, edges"}


class Dictionary(torch.nn.Module):
    """A model of a dictionary, told its entries; its energy and forces come back."""

    def __init__(self, model: torch.nn.Module, entries, outputs: tuple[str, ...]):
        super().__init__()
        self.model, self.entries, self.outputs = model, entries, outputs

    def forward(
        self, kinds: torch.Tensor, pos: torch.Tensor, edges: torch.Tensor
    ) -> list[torch.Tensor]:
        out = self.model(self.entries(kinds, pos, edges))
        return [out[name] for name in self.outputs]


@cases(
    "schnetpack", "SchNet energy", "SchNet forces", "PaiNN energy", "PaiNN forces", "FieldSchNet"
)
def schnetpack(name: str) -> Example:
    from torch.utils.data import dataloader

    dataloader.T_co = dataloader._T_co = typing.TypeVar("T_co")  # gone since torch 2.11
    import schnetpack as spk

    kind, _, asked = name.partition(" ")
    basis = spk.nn.GaussianRBF(n_rbf=8, cutoff=CUTOFF)
    cutoff = spk.nn.CosineCutoff(CUTOFF)
    network = getattr(spk.representation, kind)(
        n_atom_basis=16, n_interactions=2, radial_basis=basis, cutoff_fn=cutoff
    )
    outputs = [spk.atomistic.Atomwise(n_in=16, output_key="energy")]
    if asked == "forces":
        outputs.append(spk.atomistic.Forces(energy_key="energy", force_key="forces"))
    module = spk.model.NeuralNetworkPotential(network, [spk.atomistic.PairwiseDistances()], outputs)

    def entries(kinds, pos, edges):
        return {
            "_atomic_numbers": kinds + 1,
            "_positions": pos,
            "_cell": torch.zeros(1, 3, 3),
            "_pbc": torch.zeros(3, dtype=torch.bool),
            "_offsets": torch.zeros(edges.shape[1], 3),
            "_idx_i": edges[0],
            "_idx_j": edges[1],
            "_idx_m": torch.zeros_like(kinds),
            "_n_atoms": torch.tensor([kinds.shape[0]]),
        }

    names = ("energy", "forces") if asked == "forces" else ("energy",)
    return Example(Dictionary(module, entries, names), molecule, SIZES, train=True)


@cases("nequip", "NequIP", "NequIP energy", wide=True)
def nequip(name: str) -> Example:
    from nequip.model import NequIPGNNModel
    from nequip.utils.global_state import set_global_state

    set_global_state()
    module = NequIPGNNModel(
        seed=0, model_dtype="float64", r_max=CUTOFF, type_names=["H", "O"], num_layers=2, l_max=1,
        num_features=4, radial_mlp_width=8, num_bessels=4, avg_num_neighbors=4.0,
        per_type_energy_scales={"H": 1.0, "O": 2.0}, per_type_energy_shifts={"H": 0.5, "O": -0.5},
        do_derivatives=name == "NequIP",
    )  # fmt: skip

    def entries(kinds, pos, edges):
        return {"pos": pos, "edge_index": edges, "atom_types": kinds}

    names = ("total_energy", "forces") if name == "NequIP" else ("total_energy",)
    return Example(Dictionary(module, entries, names), molecule, SIZES, train=True)


@cases("mace-torch", "MACE", "ScaleShiftMACE", "MACE energy", wide=True)
def mace(name: str) -> Example:
    import numpy as np
    from e3nn import o3
    from mace import modules

    options = {}
    if name == "ScaleShiftMACE":
        options = {"atomic_inter_scale": 1.0, "atomic_inter_shift": 0.0}
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    module = getattr(modules, name.split()[0])(
        r_max=CUTOFF, num_bessel=4, num_polynomial_cutoff=5, max_ell=2, interaction_cls=block,
        interaction_cls_first=block, num_interactions=2, num_elements=2,
        hidden_irreps=o3.Irreps("4x0e + 4x1o"), MLP_irreps=o3.Irreps("4x0e"),
        gate=torch.nn.functional.silu, atomic_energies=np.array([-1.0, 2.0]),
        avg_num_neighbors=4.0, atomic_numbers=[1, 8], correlation=2, **options,
    )  # fmt: skip

    class Atoms(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = module

        def forward(
            self, kinds: torch.Tensor, pos: torch.Tensor, edges: torch.Tensor
        ) -> list[torch.Tensor]:
            data = {
                "positions": pos,
                "node_attrs": torch.nn.functional.one_hot(kinds, 2).to(pos.dtype),
                "edge_index": edges,
                "shifts": torch.zeros(edges.shape[1], 3, dtype=pos.dtype),
                "unit_shifts": torch.zeros(edges.shape[1], 3, dtype=pos.dtype),
                "cell": torch.zeros(3, 3, dtype=pos.dtype),
                "batch": torch.zeros_like(kinds),
                "ptr": torch.tensor([0, kinds.shape[0]]),
            }
            forces = name != "MACE energy"
            out = self.model(data, training=True, compute_force=forces)
            return [out["energy"], *([out["forces"]] if forces else [])]

    return Example(Atoms(), molecule, SIZES)


TORCHMD = {"tensornet": "Scalar", "equivariant-transformer": "Scalar", "graph-network": "Scalar",
           "transformer": "Scalar"}  # fmt: skip


@cases("torchmd-net", *TORCHMD, "tensornet energy", "tensornet of unknown systems")
def torchmd(name: str) -> Example:
    from torchmdnet.models.model import create_model

    module = create_model(
        {
            "model": name.split()[0],
            "precision": 32,
            "embedding_dimension": 8,
            "num_layers": 1,
            "num_rbf": 4,
            "rbf_type": "expnorm",
            "trainable_rbf": False,
            "activation": "silu",
            "cutoff_lower": 0.0,
            "cutoff_upper": CUTOFF,
            "max_z": 10,
            "max_num_neighbors": 16,
            "atom_filter": -1,
            "prior_model": None,
            "output_model": "Scalar",
            "output_model_mean": None,
            "reduce_op": "sum",
            "derivative": " " not in name,
            "equivariance_invariance_group": "O(3)",
            "neighbor_embedding": True,
            "attn_activation": "silu",
            "num_heads": 2,
            "distance_influence": "both",
            "aggr": "add",
            "static_shapes": True,
        }
    )

    class Atoms(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = module

        def forward(self, kinds: torch.Tensor, pos: torch.Tensor) -> list[torch.Tensor]:
            # Without the number it is the one of the last call, where torch compiles.
            systems = None if name.endswith("systems") else 1
            out = self.model(kinds + 1, pos, num_systems=systems)
            return [x for x in out if x is not None and x.numel()]

    inputs = lambda others: molecule(others)[:2]
    return Example(Atoms(), inputs, {"kinds": "atoms", "pos": "atoms, _"}, train=True)
