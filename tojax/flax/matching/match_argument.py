"""What the user decides: ``match={"flax/path": "torch.name"}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tojax.errors import WrongArguments
from tojax.flax.matching.layer import Flax, Slot, Torch
from tojax.flax.matching.pairing import Pairing
from tojax.flax.matching.stored import as_numpy
from tojax.trees import is_array


def pattern(text: str) -> re.Pattern[str]:
    """A name in which ``*`` stands for any characters but for slashes and dots.

    Example:
      >>> pattern("blocks/*/fc").fullmatch("blocks/11/fc")[1]
      '11'
    """
    return re.compile(r"([^/.]*)".join(map(re.escape, text.split("*"))))


def arrays(match: Mapping[str, Any], slots: list[Slot]) -> tuple[dict[tuple, Any], list[Slot]]:
    """Values that are given as arrays (None: what is there), and the slots without these."""
    values: dict[tuple, Any] = {}
    for key, value in match.items():
        if value is not None and not is_array(value):
            continue
        found = [s for s in slots if pattern(key).fullmatch(s.name) or _under(key, s)]
        if not found:
            raise _nothing(key, [s.name for s in slots])
        for slot in found:
            if value is not None and tuple(value.shape) != slot.shape:
                raise WrongArguments(
                    f"the array given for {slot.name} has the shape {tuple(value.shape)}",
                    where=f"match[{key!r}]",
                    why=f"the variable has the shape {slot.shape}",
                    do="give it in the variable's own layout",
                )
            values[slot.path] = value if value is None else np.asarray(as_numpy(value))
    return values, [s for s in slots if s.path not in values]


def _under(key: str, slot: Slot) -> bool:
    return any(
        pattern(key).fullmatch("/".join(map(str, slot.path[:i]))) for i in range(1, len(slot.path))
    )


def pairs(match: Mapping[str, Any], pairing: Pairing) -> None:
    """Decides what is given by name, or leaves only the layout of it open."""
    for key, value in match.items():
        if value is None or is_array(value):
            continue
        name, layout = value if isinstance(value, tuple) else (value, None)
        hits = [(f, hit) for f in pairing.flax if (hit := _names(key, f))]
        if not hits:
            raise _nothing(key, [f.shown for f in pairing.flax])
        for flax, hit in hits:
            _give(pairing, key, flax, _filled_in(name, hit.groups()), layout)


def _names(key: str, flax: Flax) -> re.Match | None:
    for name in (flax.name, *(slot.name for slot in flax.slots.values())):
        if match := pattern(key).fullmatch(name):
            return match
    return None


def _filled_in(name: str, stars: tuple[str, ...]) -> str:
    for star in stars:
        name = name.replace("*", star, 1)
    return name


def _give(pairing: Pairing, key: str, flax: Flax, name: str, layout: str | None) -> None:
    torch = next((t for t in pairing.torch if _called(t, name)), None)
    if torch is None:
        raise _nothing(key, [t.shown for t in pairing.torch], name)
    every = pairing.choices(flax, torch)
    if not every and torch.kind == "embed":  # an embedding as a head
        every = pairing.choices(flax, replace(torch, kind="linear"))
    ways = [c for c in every if layout in (None, c.layout)]
    if not ways:
        have = {role: t.shape for role, t in torch.tensors.items()}
        want = {role: s.shape for role, s in flax.slots.items()}
        raise WrongArguments(
            f"{torch.shown} does not fit {flax.shown}" + (f" {layout!r}" if layout else ""),
            where=f"match[{key!r}]",
            why=f"torch has {have}, flax {want}; the layouts that fit: "
            + (", ".join(repr(c.layout) for c in every) or "none"),
            do="give another name or layout, or the array itself in the variable's layout",
        )
    if len(ways) == 1:
        pairing.take(flax, ways[0], "given")
    else:
        pairing.open[flax], pairing.found[flax] = ways, "given"


def _called(torch: Torch, name: str) -> bool:
    labels = [t.label for t in torch.tensors.values()]
    return name == torch.path or name in labels


def _nothing(key: str, names: list[str], wanted: str | None = None) -> WrongArguments:
    side = "flax" if wanted is None else "torch"
    return WrongArguments(
        f"there is no {side} layer {wanted or key!r}",
        where=f"match[{key!r}]",
        why=f"the {side} layers are {', '.join(names[:12])}" + (", ..." if len(names) > 12 else ""),
        do="write the path as it stands here; * stands for one step",
    )
