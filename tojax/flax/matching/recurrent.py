"""Cells of LSTM, GRU and plain recurrent layers: torch packs the gates, flax parts them.

Torch has two biases wherever flax has one, so the one is their sum; but in a GRU the reset gate
scales the hidden side of the new value, whose bias therefore stays alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tojax.flax.matching.layer import Fill, Flax, Layout, Slot, Tensor, Torch

GATES = {"lstm": "ifgo", "gru": "rzn", "rnn": " "}


def fills(flax: Flax, torch: Torch) -> list[Fill] | None:
    """What fills a cell's variables; None where it does not fit."""
    gates = GATES[flax.kind]
    if not {"weight_ih", "weight_hh"} <= torch.tensors.keys():
        return None
    hidden = torch.tensors["weight_hh"].shape[1]
    found = []
    for inside, slot in flax.slots.items():
        name, _, leaf = inside.partition("/")
        side, gate = _read(name)
        picked = gates if gate == "" else gate
        rows = np.concatenate([np.arange(hidden) + hidden * gates.index(g) for g in picked])
        fill = (
            _kernel(slot, torch.tensors[f"weight_{side}h"], rows)
            if leaf == "kernel"
            else _bias(flax.slots, slot, torch.tensors, side, picked, rows)
        )
        if fill is None or tuple(fill.tensor.shape) != tuple(slot.shape):
            return None
        found.append(fill)
    return found


def homeless(flax: Flax, torch: Torch) -> list[str]:
    """Biases that the flax cell has no place for, unless they are zero.

    ``nnx.GRUCell`` lacks the bias that the reset gate scales; cells without biases lack all.
    """
    given = torch.tensors.get("bias_hh")
    if given is None:
        return []
    biased = {_read(x.partition("/")[0]) for x in flax.slots if x.endswith("/bias")}
    if not biased:
        lost = any(torch.tensors[f"bias_{s}h"].read().any() for s in "ih")
        return [torch.tensors[f"bias_{s}h"].label for s in "ih"] if lost else []
    if torch.kind == "gru" and not biased & {("h", ""), ("h", "n")}:
        rest = given.read()[2 * given.shape[0] // 3 :]
        return [f"{given.label}[{2 * given.shape[0] // 3}:]"] if rest.any() else []
    return []


def _read(name: str) -> tuple[str, str]:
    """``hf`` -> ("h", "f"); ``dense_i`` -> ("i", "")."""
    name = name.rstrip("_").removeprefix("dense_")
    return name[0], name[1:]


def _kernel(slot: Slot, packed: Tensor, rows: np.ndarray) -> Fill:
    shape = (packed.shape[1], len(rows))
    part = Tensor(packed.label, packed.sources, shape, packed.read)
    return Fill(slot, part, Layout("gates, transposed", lambda a: a[rows].T))


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
    biased = {_read(x.partition("/")[0]) for x in slots if x.endswith("/bias")}
    other = "h" if side == "i" else "i"
    alone = {g for g in gates if {(other, g), (other, "")} & biased}  # both sides have one
    own, their = tensors[f"bias_{side}h"], tensors[f"bias_{other}h"]
    gru = tensors["weight_hh"].shape[0] == 3 * tensors["weight_hh"].shape[1]
    hidden = tensors["weight_hh"].shape[1]
    summed = np.repeat([g not in alone and not (gru and g == "n") for g in gates], hidden)

    def read() -> np.ndarray:
        mine = own.read()[rows]
        return np.where(summed, mine + their.read()[rows], mine).astype(mine.dtype)

    both = bool(summed.any())
    label = f"{own.label} + {their.label}" if both else own.label
    sources = own.sources + (their.sources if both else ())
    return Fill(slot, Tensor(label, sources, (len(rows),), read), Layout("gates", lambda a: a))
