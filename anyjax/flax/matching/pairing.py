"""Pairs of layers by names and shapes; open layers are decided by outputs or by the user."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from anyjax.flax.matching import layouts
from anyjax.flax.matching.flax_layers import counting_group
from anyjax.flax.matching.layer import Choice, Flax, Torch
from anyjax.flax.matching.layouts import Maps
from anyjax.flax.matching.names import RULES, Name, names_of_both


@dataclass
class Pairing:
    """The layers of both sides, and which of them belong together.

    Attributes:
      flax, torch: all layers of either side.
      decided: by flax layer, its choice and how it was decided.
      open: by flax layer, several choices, or one that other layers have as well.
      unmatched: the torch layers without a decision.
      torch_decided_by: for an open layer whose torch layer is decided and only the layout is open,
        how it was decided.
    """

    flax: list[Flax]
    torch: list[Torch]
    decided: dict[Flax, tuple[Choice, str]] = field(default_factory=dict)
    open: dict[Flax, list[Choice]] = field(default_factory=dict)
    unmatched: set[Torch] = field(default_factory=set)
    torch_decided_by: dict[Flax, str] = field(default_factory=dict)

    @cached_property
    def _flattened(self) -> dict[Torch, Maps]:
        return _channels(self.torch)

    @cached_property
    def _names(self) -> tuple[dict[Flax, Name], dict[Torch, Name]]:
        return names_of_both(self.flax, self.torch, counting_group)

    @property
    def flax_names(self) -> dict[Flax, Name]:
        return self._names[0]

    @property
    def torch_names(self) -> dict[Torch, Name]:
        return self._names[1]

    def choices(self, flax: Flax, torch: Torch) -> list[Choice]:
        """Returns the choices of this torch layer for this flax layer."""
        return layouts.choices(flax, torch, self._flattened.get(torch, layouts.NO_MAPS))

    def take(self, flax: Flax, choice: Choice, how: str) -> None:
        """Decides a layer."""
        self.decided[flax] = choice, how
        self.unmatched.discard(choice.torch)
        self.open.pop(flax, None)


def pair(pairing: Pairing) -> None:
    """Decides the layers that names and shapes determine; the others become ``open``.

    A pair whose layout is not unique is open with this torch layer alone.
    """
    assigned = {c.torch for choices in pairing.open.values() for c in choices}
    assigned |= {c.torch for c, _ in pairing.decided.values()}
    matched = _match_by_rules(pairing, set(assigned))
    pairing.unmatched = set(pairing.torch) - assigned - {t for t, _ in matched.values()}
    for f in pairing.flax:
        if f in matched:
            torch, how = matched[f]
            choices = pairing.choices(f, torch)
            if len(choices) == 1:
                pairing.take(f, choices[0], how)
            else:
                pairing.open[f], pairing.torch_decided_by[f] = choices, how
        elif f not in pairing.decided and f not in pairing.open and _needed(f):
            blocks = pairing.flax_names[f].blocks
            fitting = {t: ways for t in pairing.unmatched if (ways := pairing.choices(f, t))}
            same_blocks = [t for t in fitting if blocks == pairing.torch_names[t].blocks]
            candidates = [t for t in pairing.torch if t in (same_blocks or fitting)]
            if candidates:
                pairing.open[f] = [c for t in candidates for c in fitting[t]]


def _needed(flax: Flax) -> bool:
    return any(slot.needed for slot in flax.slots.values())


def _match_by_rules(pairing: Pairing, taken: set[Torch]) -> dict[Flax, tuple[Torch, str]]:
    """Returns the torch layer, and how it was decided, of each flax layer that a rule matches."""
    unmatched = [f for f in pairing.flax if f not in pairing.decided and f not in pairing.open]
    free = [t for t in pairing.torch if t not in taken]
    fits = {f: [t for t in free if pairing.choices(f, t)] for f in unmatched}
    matched: dict[Flax, tuple[Torch, str]] = {}
    progress = True
    while progress:
        progress = False
        for how, key in RULES:
            for f, t in _unique_pairs(pairing, fits, matched, taken, key, how):
                matched[f] = t, _how_reported(how, pairing.flax_names[f], pairing.torch_names[t])
                taken.add(t)
                progress = True
            if progress:
                break
    return matched


def _how_reported(how: str, flax: Name, torch: Name) -> str:
    """Returns "order" instead of "name" for a name that is nothing but a number."""
    counted = bool(flax.steps) and flax.leaf == "" and flax.raw[-1:] != torch.raw[-1:]
    return "order" if how == "name" and counted else how


def _unique_pairs(
    pairing: Pairing,
    fits: Mapping[Flax, list[Torch]],
    matched: Mapping[Flax, tuple[Torch, str]],
    taken: set[Torch],
    key: Callable[[Name], Hashable],
    how: str,
) -> Iterable[tuple[Flax, Torch]]:
    """Returns the pairs with a key that occurs once on both sides."""
    forward: dict[Flax, list[Torch]] = {}
    backward: dict[Torch, list[Flax]] = {}
    torch_keys = {t: key(pairing.torch_names[t]) for t in pairing.torch if t not in taken}
    for f, torches in fits.items():
        flax_key = key(pairing.flax_names[f])
        if f in matched or flax_key is None or (how == "shape" and not _needed(f)):
            continue
        for t in torches:
            if t in torch_keys and torch_keys[t] == flax_key:
                forward.setdefault(f, []).append(t)
                backward.setdefault(t, []).append(f)
    return [(f, ts[0]) for f, ts in forward.items() if len(ts) == len(backward[ts[0]]) == 1]


def _channels(torch: list[Torch]) -> dict[Torch, Maps]:
    """Returns the possible channel counts of the feature map beside each matrix.

    A map is flattened before a matrix whose inputs are not the channels of the last convolution
    but a multiple of some convolution's, unless an earlier matrix has as many outputs. The same
    backwards for a map that is made of a matrix's outputs.
    """
    maps_before = _adjacent_channels(torch, inputs=True)
    maps_after = _adjacent_channels(torch[::-1], inputs=False)
    matrices = maps_before.keys() | maps_after.keys()
    return {t: Maps(maps_before.get(t, ()), maps_after.get(t, ())) for t in matrices}


def _adjacent_channels(torch: list[Torch], inputs: bool) -> dict[Torch, tuple[int, ...]]:
    channels: dict[Torch, tuple[int, ...]] = {}
    counts: list[int] = []
    matrix_sizes: set[int] = set()
    for layer in torch:
        weight = layer.tensors.get("weight")
        if weight is None:
            continue
        if len(weight.shape) in (3, 4, 5) and layer.kind != "raw":
            count = weight.shape[int((layer.kind == "convt") == inputs)]
            counts = [count, *[n for n in counts if n != count]]
        elif len(weight.shape) == 2 and layer.kind in ("linear", ""):
            size, opposite_size = weight.shape[::-1] if inputs else weight.shape
            divisors = tuple(n for n in counts if size % n == 0 and size > n > 1)
            if divisors and size not in matrix_sizes and size != counts[0]:
                channels[layer] = divisors
            matrix_sizes.add(opposite_size)
    return channels


def families(pairing: Pairing) -> list[list[list[Flax]]]:
    """Groups open layers that compete for the same torch layers, and puts the groups of repeated
    blocks, which are decided alike, into one family.
    """
    groups: list[tuple[list[Flax], set[Torch]]] = []
    for f, choices in pairing.open.items():
        mine, torches = [f], {c.torch for c in choices}
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
    """Returns the path without the ranks in lists of blocks, but with a last word's own number."""
    last = name.raw[-1:] if name.raw and not name.raw[-1].isdigit() else ()
    return (*(s.word for s in name.steps[:-1]), *last)
