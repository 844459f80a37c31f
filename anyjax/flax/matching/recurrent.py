"""Cells of LSTM, GRU and plain recurrent layers: torch packs the gates, flax separates them.

Torch has two biases where flax has one, which is their sum. Only in a GRU's new gate they stay
separate, because the reset gate scales the hidden side with its bias.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anyjax.flax.matching import torch_order
from anyjax.flax.matching.layer import Fill, Flax, Layout, Slot, Tensor, Torch

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": " "}


def fills(flax: Flax, torch: Torch) -> list[Fill] | None:
    """Returns the fills of a cell's variables, None if the cells do not fit."""
    if "weight_ih" in flax.slots:
        return torch_order.cell_fills(flax, torch)
    gates = GATES[flax.kind]
    if not {"weight_ih", "weight_hh"} <= torch.tensors.keys():
        return None
    hidden = torch.tensors["weight_hh"].shape[1]
    cell_fills = []
    for path, slot in flax.slots.items():
        name, _, leaf = path.partition("/")
        side, gate = _side_and_gate(name)
        slot_gates = gates if gate == "" else gate
        rows = np.concatenate([np.arange(hidden) + hidden * gates.index(g) for g in slot_gates])
        fill = (
            _kernel(slot, torch.tensors[f"weight_{side}h"], rows)
            if leaf == "kernel"
            else _bias(flax.slots, slot, torch.tensors, side, slot_gates, rows)
        )
        if fill is None or tuple(fill.tensor.shape) != tuple(slot.shape):
            return None
        cell_fills.append(fill)
    return cell_fills


def unplaced_biases(flax: Flax, torch: Torch) -> list[str]:
    """Returns labels of biases that are not zero and that the flax cell has no variable for.

    ``nnx.GRUCell`` lacks the bias that the reset gate scales; cells without biases lack all.
    """
    hidden_bias = torch.tensors.get("bias_hh")
    if hidden_bias is None:
        return []
    biased = {_side_and_gate(x.partition("/")[0]) for x in flax.slots if x.endswith("/bias")}
    if "bias" in flax.slots:  # Equinox's cells have a place for each
        return []
    if not biased:
        nonzero = any(torch.tensors[f"bias_{s}h"].read().any() for s in "ih")
        return [torch.tensors[f"bias_{s}h"].label for s in "ih"] if nonzero else []
    if torch.kind == "gru" and not biased & {("h", ""), ("h", "n")}:
        start = 2 * hidden_bias.shape[0] // 3
        return [f"{hidden_bias.label}[{start}:]"] if hidden_bias.read()[start:].any() else []
    return []


def _side_and_gate(name: str) -> tuple[str, str]:
    """Reads a name of flax: ``hf`` is ("h", "f"), ``dense_i`` is ("i", "")."""
    name = name.rstrip("_").removeprefix("dense_")
    return name[0], name[1:]


def _kernel(slot: Slot, packed: Tensor, rows: np.ndarray) -> Fill:
    shape = (packed.shape[1], len(rows))
    tensor = Tensor(packed.label, packed.sources, shape, packed.read)
    return Fill(slot, tensor, Layout("gates, transposed", lambda a: a[rows].T))


def _bias(
    slots: Mapping[str, Slot],
    slot: Slot,
    tensors: Mapping[str, Tensor],
    side: str,
    gates: str,
    rows: np.ndarray,
) -> Fill | None:
    if "bias_ih" not in tensors:
        return None
    biased = {_side_and_gate(x.partition("/")[0]) for x in slots if x.endswith("/bias")}
    opposite = "h" if side == "i" else "i"
    two_biases = {g for g in gates if {(opposite, g), (opposite, "")} & biased}
    bias, opposite_bias = tensors[f"bias_{side}h"], tensors[f"bias_{opposite}h"]
    gru = tensors["weight_hh"].shape[0] == 3 * tensors["weight_hh"].shape[1]
    hidden = tensors["weight_hh"].shape[1]
    summed = np.repeat([g not in two_biases and not (gru and g == "n") for g in gates], hidden)

    def read() -> np.ndarray:
        values = bias.read()[rows]
        return np.where(summed, values + opposite_bias.read()[rows], values).astype(values.dtype)

    both = bool(summed.any())
    label = f"{bias.label} + {opposite_bias.label}" if both else bias.label
    sources = bias.sources + (opposite_bias.sources if both else ())
    return Fill(slot, Tensor(label, sources, (len(rows),), read), Layout("gates", lambda a: a))
