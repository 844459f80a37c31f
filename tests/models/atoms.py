"""Models of atoms as people write them in torch: messages along edges, forces by autograd."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

CUTOFF = 3.0
SPECIES = (1, 6, 8)


class SchNet(nn.Module):
    """Radial basis, filters, messages summed by ``index_add``; energy of each atom, forces."""

    def __init__(self, width: int = 8, layers: int = 2, gives: str = "energy energies forces"):
        super().__init__()
        self.gives = gives.split()
        self.embedding = nn.Embedding(10, width)
        self.register_buffer("centers", torch.linspace(0.5, CUTOFF, 8))
        perceptron = lambda n, m: nn.Sequential(nn.Linear(n, width), nn.SiLU(), nn.Linear(width, m))
        self.filters = nn.ModuleList(perceptron(8, width) for _ in range(layers))
        self.updates = nn.ModuleList(perceptron(width, width) for _ in range(layers))
        self.readout = perceptron(width, 1)

    def forward(self, z, pos, edge_index, shifts=None):
        if "forces" in self.gives and not pos.requires_grad:
            pos.requires_grad_()
        sender, receiver = edge_index
        vectors = pos[receiver] - pos[sender]
        distances = (vectors if shifts is None else vectors + shifts).norm(dim=-1)
        energies = self.energies(self.embedding(z), distances, sender, receiver)
        out = {"energy": energies.sum(), "energies": energies}
        if "forces" in self.gives:
            (slope,) = torch.autograd.grad(out["energy"], pos, create_graph=True)
            out["forces"] = -slope
        return {k: out[k] for k in self.gives}

    def energies(self, h, distances, sender, receiver):
        """Energies of atoms [atoms], from features and distances of edges."""
        basis = torch.exp(-4 * (distances[:, None] - self.centers) ** 2)
        envelope = 0.5 * (torch.cos(torch.pi * distances / CUTOFF) + 1) * (distances < CUTOFF)
        for filters, update in zip(self.filters, self.updates):
            messages = h[sender] * filters(basis) * envelope[:, None]
            h = h + update(torch.zeros_like(h).index_add(0, receiver, messages))
        return self.readout(h)[:, 0]


class Springs(nn.Module):
    """One number for all atoms, from pairs at any distance: it counts padding."""

    def __init__(self):
        super().__init__()
        self.stiffness = nn.Parameter(torch.tensor(2.0))

    def forward(self, pos, edge_index):
        distances = (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=-1)
        return self.stiffness * ((distances - 1) ** 2).sum() / 4


def schnet(**options) -> SchNet:
    """A SchNet with random weights in float64."""
    torch.manual_seed(0)
    return SchNet(**options).double()


def cluster(atoms: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Positions about an Angstrom apart, and atomic numbers."""
    rng = np.random.default_rng(seed)
    grid = np.indices((3, 3, 3)).reshape(3, -1).T[:atoms]
    positions = 1.3 * grid + rng.uniform(-0.15, 0.15, (atoms, 3))
    return positions, rng.choice(SPECIES, atoms)


CELL = np.array([[4.1, 0.3, 0.0], [0.0, 4.3, 0.2], [0.1, 0.0, 4.0]])
