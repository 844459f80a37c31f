"""Pairs of layers by names and shapes; what stays open is for agreement or for the user."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tojax.flax.matching import layouts
from tojax.flax.matching.flax_layers import sort
from tojax.flax.matching.layer import Choice, Flax, Torch
from tojax.flax.matching.layouts import Maps
from tojax.flax.matching.names import RULES, Name, names


@dataclass
class Pairing:
    """What is decided: for a flax layer its choice and how that was found.

    Attributes:
      flax, torch: all layers of either side.
      decided: by flax layer.
      open: by flax layer, more than one choice; or choices that others could have as well.
      left: the torch layers that nothing is decided about.
      found: how the torch layer of an open layer was found, where only its layout is open.
    """

    flax: list[Flax]
    torch: list[Torch]
    decided: dict[Flax, tuple[Choice, str]] = field(default_factory=dict)
    open: dict[Flax, list[Choice]] = field(default_factory=dict)
    left: set[Torch] = field(default_factory=set)
    found: dict[Flax, str] = field(default_factory=dict)

    @cached_property
    def _flattened(self) -> dict[Torch, Maps]:
        return _channels(self.torch)

    @cached_property
    def flax_names(self) -> dict[Flax, Name]:
        return names(self.flax, sort)

    @cached_property
    def torch_names(self) -> dict[Torch, Name]:
        return names(self.torch, sort)

    def choices(self, flax: Flax, torch: Torch) -> list[Choice]:
        """The ways in which these two fit."""
        return layouts.choices(flax, torch, self._flattened.get(torch, layouts.NO_MAPS))

    def take(self, flax: Flax, choice: Choice, how: str) -> None:
        """Decides a layer."""
        self.decided[flax] = choice, how
        self.left.discard(choice.torch)
        self.open.pop(flax, None)


def pair(pairing: Pairing) -> None:
    """Decides all that names and shapes decide; fills ``open`` with the rest.

    A pair whose layout stays open is open with this one torch layer.
    """
    busy = {c.torch for ways in pairing.open.values() for c in ways}
    busy |= {c.torch for c, _ in pairing.decided.values()}
    settled = _settled(pairing, set(busy))
    pairing.left = set(pairing.torch) - busy - {t for t, _ in settled.values()}
    for f in pairing.flax:
        if f in settled:
            torch, how = settled[f]
            ways = pairing.choices(f, torch)
            if len(ways) == 1:
                pairing.take(f, ways[0], how)
            else:
                pairing.open[f], pairing.found[f] = ways, how
        elif f not in pairing.decided and f not in pairing.open and _needed(f):
            ours = pairing.flax_names[f].blocks
            free = {t: ways for t in pairing.left if (ways := pairing.choices(f, t))}
            near = [t for t in free if ours == pairing.torch_names[t].blocks]
            if free:
                kept = [t for t in pairing.torch if t in (near or free)]
                pairing.open[f] = [c for t in kept for c in free[t]]


def _needed(flax: Flax) -> bool:
    return any(slot.needed for slot in flax.slots.values())


def _settled(pairing: Pairing, taken: set[Torch]) -> dict[Flax, tuple[Torch, str]]:
    """The torch layer of each flax layer for which one rule leaves only one."""
    rest = [f for f in pairing.flax if f not in pairing.decided and f not in pairing.open]
    free = [t for t in pairing.torch if t not in taken]
    fits = {f: [t for t in free if pairing.choices(f, t)] for f in rest}
    settled: dict[Flax, tuple[Torch, str]] = {}
    found = True
    while found:
        found = False
        for how, key in RULES:
            for f, t in _only(pairing, fits, settled, taken, key, how):
                settled[f] = t, _told(how, pairing.flax_names[f], pairing.torch_names[t])
                taken.add(t)
                found = True
            if found:
                break
    return settled


def _told(how: str, flax: Name, torch: Name) -> str:
    """A name that is nothing but a number matches by order."""
    counted = bool(flax.parts) and flax.leaf == "" and flax.raw[-1:] != torch.raw[-1:]
    return "order" if how == "name" and counted else how


def _only(
    pairing: Pairing,
    fits: Mapping[Flax, list[Torch]],
    settled: Mapping[Flax, Any],
    taken: set[Torch],
    key: Callable[[Name], Hashable],
    how: str,
) -> Iterable[tuple[Flax, Torch]]:
    """Pairs that are the only ones of their key on both sides."""
    forward: dict[Flax, list[Torch]] = {}
    backward: dict[Torch, list[Flax]] = {}
    theirs = {t: key(pairing.torch_names[t]) for t in pairing.torch if t not in taken}
    for f, all_ in fits.items():
        mine = key(pairing.flax_names[f])
        if f in settled or mine is None or (how == "shape" and not _needed(f)):
            continue
        for t in all_:
            if t in theirs and theirs[t] == mine:
                forward.setdefault(f, []).append(t)
                backward.setdefault(t, []).append(f)
    return [(f, ts[0]) for f, ts in forward.items() if len(ts) == len(backward[ts[0]]) == 1]


def _channels(torch: list[Torch]) -> dict[Torch, Maps]:
    """For each matrix beside a flattened feature map: the channels that the map may have.

    A map is flattened where a matrix has more inputs than the last convolution has channels, a
    multiple of some, and no other matrix before it makes as many; the same backwards for a map
    that is made of a matrix's outputs.
    """
    before = _beside(torch, inputs=True)
    after = _beside(torch[::-1], inputs=False)
    return {t: Maps(before.get(t, ()), after.get(t, ())) for t in before.keys() | after.keys()}


def _beside(torch: list[Torch], inputs: bool) -> dict[Torch, tuple[int, ...]]:
    found: dict[Torch, tuple[int, ...]] = {}
    counts: list[int] = []
    made: set[int] = set()
    for layer in torch:
        weight = layer.tensors.get("weight")
        if weight is None:
            continue
        if len(weight.shape) in (3, 4, 5) and layer.kind != "raw":
            count = weight.shape[int((layer.kind == "convt") == inputs)]
            counts = [count, *[n for n in counts if n != count]]
        elif len(weight.shape) == 2 and layer.kind in ("linear", ""):
            size, other = weight.shape[::-1] if inputs else weight.shape
            some = tuple(n for n in counts if size % n == 0 and size > n > 1)
            if some and size not in made and size != counts[0]:
                found[layer] = some
            made.add(other)
    return found


def families(pairing: Pairing) -> list[list[list[Flax]]]:
    """Open layers that compete for the same torch layers, as groups; groups of repeated blocks,
    which are decided alike, as one family.
    """
    groups: list[tuple[list[Flax], set[Torch]]] = []
    for f, ways in pairing.open.items():
        mine, torches = [f], {c.torch for c in ways}
        for group in [g for g in groups if g[1] & torches]:
            groups.remove(group)
            mine, torches = [*group[0], *mine], torches | group[1]
        groups.append((mine, torches))
    by_template: dict[Hashable, list[list[Flax]]] = {}
    for i, (mine, torches) in enumerate(groups):
        mine.sort(key=lambda f: template(pairing.flax_names[f]))
        ours = tuple(template(pairing.flax_names[f]) for f in mine)
        theirs = tuple(sorted(template(pairing.torch_names[t]) for t in torches))
        alike = len(set(ours)) == len(ours) and len(set(theirs)) == len(theirs)
        by_template.setdefault((ours, theirs) if alike else i, []).append(mine)
    return list(by_template.values())


def template(name: Name) -> tuple[str, ...]:
    """The path without the places in lists of blocks, but with a last word's own number."""
    last = name.raw[-1:] if name.raw and not name.raw[-1].isdigit() else ()
    return (*(p.word for p in name.parts[:-1]), *last)
