"""The user's decisions: ``match={"flax/path": "torch.name"}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anyjax.errors import WrongArguments
from anyjax.flax.matching.layer import Flax, Slot, Torch
from anyjax.flax.matching.pairing import Pairing
from anyjax.flax.matching.stored import as_numpy
from anyjax.trees import is_array


def pattern(text: str) -> re.Pattern[str]:
    """Compiles a name in which ``*`` stands for any characters but slashes and dots.

    Example:
      >>> pattern("blocks/*/fc").fullmatch("blocks/11/fc")[1]
      '11'
    """
    return re.compile(r"([^/.]*)".join(map(re.escape, text.split("*"))))


def array_values(
    match: Mapping[str, Any], slots: list[Slot]
) -> tuple[dict[tuple, Any], list[Slot]]:
    """Returns (arrays of the user by path, None to keep a value; the slots without these)."""
    values: dict[tuple, Any] = {}
    for key, value in match.items():
        if value is not None and not is_array(value):
            continue
        matching = [s for s in slots if pattern(key).fullmatch(s.name) or _is_inside(key, s)]
        if not matching:
            raise _no_layer(key, [s.name for s in slots])
        for slot in matching:
            if value is not None and tuple(value.shape) != slot.shape:
                raise WrongArguments(
                    f"the array given for {slot.name} has the shape {tuple(value.shape)}",
                    where=f"match[{key!r}]",
                    why=f"the variable has the shape {slot.shape}",
                    do="give it in the variable's own layout",
                )
            values[slot.path] = value if value is None else np.asarray(as_numpy(value))
    return values, [s for s in slots if s.path not in values]


def _is_inside(key: str, slot: Slot) -> bool:
    return any(
        pattern(key).fullmatch("/".join(map(str, slot.path[:i]))) for i in range(1, len(slot.path))
    )


def apply_names(match: Mapping[str, Any], pairing: Pairing) -> None:
    """Decides the layers that the user names; a layout that is not unique stays open."""
    for key, value in match.items():
        if value is None or is_array(value):
            continue
        name, layout = value if isinstance(value, tuple) else (value, None)
        hits = [(f, hit) for f in pairing.flax if (hit := _match_layer(key, f))]
        if not hits:
            raise _no_layer(key, [f.shown for f in pairing.flax])
        for flax, hit in hits:
            _decide(pairing, key, flax, _replace_stars(name, hit.groups()), layout)


def _match_layer(key: str, flax: Flax) -> re.Match | None:
    for name in (flax.name, *(slot.name for slot in flax.slots.values())):
        if match := pattern(key).fullmatch(name):
            return match
    return None


def _replace_stars(name: str, stars: tuple[str, ...]) -> str:
    for star in stars:
        name = name.replace("*", star, 1)
    return name


def _decide(pairing: Pairing, key: str, flax: Flax, name: str, layout: str | None) -> None:
    torch = next((t for t in pairing.torch if _is_named(t, name)), None)
    if torch is None:
        raise _no_layer(key, [t.shown for t in pairing.torch], name)
    fitting = pairing.choices(flax, torch)
    if not fitting and torch.kind == "embed":  # an embedding as a head
        fitting = pairing.choices(flax, replace(torch, kind="linear"))
    choices = [c for c in fitting if layout in (None, c.layout)]
    if not choices:
        have = {role: t.shape for role, t in torch.tensors.items()}
        want = {role: s.shape for role, s in flax.slots.items()}
        raise WrongArguments(
            f"{torch.shown} does not fit {flax.shown}" + (f" {layout!r}" if layout else ""),
            where=f"match[{key!r}]",
            why=f"torch has {have}, flax {want}; the layouts that fit: "
            + (", ".join(repr(c.layout) for c in fitting) or "none"),
            do="give another name or layout, or the array itself in the variable's layout",
        )
    if len(choices) == 1:
        pairing.take(flax, choices[0], "given")
    else:
        pairing.open[flax], pairing.torch_decided_by[flax] = choices, "given"


def _is_named(torch: Torch, name: str) -> bool:
    labels = [t.label for t in torch.tensors.values()]
    return name == torch.path or name in labels


def _no_layer(key: str, names: list[str], torch_name: str | None = None) -> WrongArguments:
    side = "flax" if torch_name is None else "torch"
    return WrongArguments(
        f"there is no {side} layer {torch_name or key!r}",
        where=f"match[{key!r}]",
        why=f"the {side} layers are {', '.join(names[:12])}" + (", ..." if len(names) > 12 else ""),
        do="write the path as it stands here; * stands for one step",
    )
