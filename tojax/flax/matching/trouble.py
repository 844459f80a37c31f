"""What stops a load: everything at once, so that it is mended at once."""

from __future__ import annotations

from tojax.errors import WrongWeights
from tojax.flax.matching.layer import Slot, Tensor
from tojax.flax.matching.pairing import Pairing
from tojax.flax.matching.running import Call


def ambiguous(pairing: Pairing, why: str) -> WrongWeights:
    """Layers that more than one torch layer or layout fits."""
    lines = []
    for f, ways in pairing.open.items():
        several = len({c.torch for c in ways}) > 1
        told = [c.torch.shown + ("" if several and c.sure else f" ({c.layout})") for c in ways]
        lines.append(f"{f.shown}: {' | '.join(dict.fromkeys(told))}")
    f, ways = next(iter(pairing.open.items()))
    same = len({c.torch for c in ways}) == 1
    value = (ways[0].torch.shown, ways[0].layout) if same else ways[0].torch.shown
    return WrongWeights(
        f"{len(lines)} layers fit more than one way",
        where=_listed(lines),
        why=why,
        do=f"decide, for example with match={{{f.shown!r}: {value!r}}}; or give example=(...), "
        "with which the outputs decide",
    )


def incomplete(unfilled: list[Slot], unused: list[Tensor]) -> WrongWeights:
    """Variables that nothing fills, and tensors that fill nothing."""
    lines = [f"{s.name} {s.shape} is not filled" for s in unfilled]
    lines += [f"{t.label} {t.shape} is not used" for t in unused]
    return WrongWeights(
        f"{len(unfilled)} variables are not filled and {len(unused)} torch tensors not used",
        where=_listed(lines),
        why="no torch layer that is left has these shapes, kinds and roles (weight, bias, ...)",
        do='mend the flax module, or say match={"flax/path": "torch.name"}, '
        'match={"flax/path": None} for what stays as it is, ignore=["torch.name"]',
    )


def homeless(lines: list[str]) -> WrongWeights:
    """Biases of recurrent layers that the flax cell cannot hold."""
    return WrongWeights(
        "recurrent biases have no place in the flax cell",
        where=_listed(lines),
        why="they are not zero, and the cell has no variable that acts as they do",
        do="use a cell with these biases: flax.linen.GRUCell has the one that nnx.GRUCell lacks",
    )


def _listed(lines: list[str]) -> str:
    return "\n         ".join(lines)


def different(
    error: float,
    tolerance: float,
    found: list[tuple[tuple, Call, float]],
    notes: list[str],
) -> WrongWeights:
    """The filled module computes something else; ``found`` are submodules that differ, in order."""
    if found:
        path, call, off = found[0]
        name = "/".join(map(str, path)) or "the module itself"
        where = f"{name} (torch: {call.path or 'the module itself'}) differs by {off:.2g}"
        where += " on the input that torch gave it; those before it agree"
    else:
        where = "every submodule that could be run alone agrees: it is the code between them"
    return WrongWeights(
        f"the outputs differ by {error:.2g} of the largest value, more than {tolerance:.2g}",
        where=where,
        why="; ".join(notes)
        if notes
        else "weights fit by name and shape, so the code differs"
        " (an epsilon, an activation, padding, order of axes)",
        do="mend the flax module; the module that was given is unchanged",
    )
