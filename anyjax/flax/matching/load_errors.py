"""Errors of ``load_into``, each with a list of all layers that it is about."""

from __future__ import annotations

from anyjax.errors import WrongWeights
from anyjax.flax.matching.layer import Slot, Tensor
from anyjax.flax.matching.pairing import Pairing


def incomplete(
    pairing: Pairing, unfilled: list[Slot], unused: list[Tensor], why: str
) -> WrongWeights:
    """Lists layers that fit more than one way, unfilled variables and unused tensors.

    Args:
      pairing: its open layers fit more than one way.
      unfilled, unused: of the flax and of the torch side.
      why: why the open layers are not decided.
    """
    lines, whys, dos = [], [], []
    for f, choices in pairing.open.items():
        several = len({c.torch for c in choices}) > 1
        shown = [c.torch.shown + ("" if several and c.sure else f" ({c.layout})") for c in choices]
        lines.append(f"{f.shown}: {' | '.join(dict.fromkeys(shown))}")
    if pairing.open:
        f, choices = next(iter(pairing.open.items()))
        same = len({c.torch for c in choices}) == 1
        value = (choices[0].torch.shown, choices[0].layout) if same else choices[0].torch.shown
        whys.append(why)
        dos.append(f"decide, as in match={{{f.shown!r}: {value!r}}}, or give a module and example=")
    lines += [f"{s.name} {s.shape} is not filled" for s in unfilled]
    lines += [f"{t.label} {t.shape} is not used" for t in unused]
    if unfilled or unused:
        whys.append("no layer that is left has the shape, kind and roles (weight, bias, ...)")
        dos.append(
            'mend the flax module, or say match={"flax/path": "torch.name"}, '
            'match={"flax/path": None} for what stays, ignore=["torch.name"] for what goes'
        )
    counts = [
        (len(pairing.open), "layers fit more than one way"),
        (len(unfilled), "variables are not filled"),
        (len(unused), "torch tensors are not used"),
    ]
    return WrongWeights(
        ", ".join(f"{n} {text}" for n, text in counts if n),
        where=_listed(lines),
        why="; ".join(whys),
        do="; ".join(dos),
    )


def unplaced_biases(lines: list[str]) -> WrongWeights:
    """Lists biases of recurrent layers that the flax cell cannot hold."""
    return WrongWeights(
        "recurrent biases have no place in the flax cell",
        where=_listed(lines),
        why="they are not zero, and the cell has no variable that acts as they do",
        do="use a cell with these biases: flax.linen.GRUCell has the one that nnx.GRUCell lacks",
    )


def _listed(lines: list[str]) -> str:
    return "\n         ".join(lines)


def different(error: float, tolerance: float, where: str, notes: list[str]) -> WrongWeights:
    """Reports that the filled module computes something else."""
    return WrongWeights(
        f"the outputs differ by {error:.2g} of the largest value, more than {tolerance:.2g}",
        where=where,
        why="; ".join(notes)
        or "weights fit by name and shape, so the code differs (an epsilon, "
        "an activation, padding, a mask, the order of axes), or a name misleads",
        do="mend the flax module, or match={...}; the module that was given is unchanged",
    )
