"""What names and shapes leave open, decided by numbers: a submodule of either side runs on the
same input, and the one assignment for which the outputs agree is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from tojax.flax.matching.layer import Choice, Flax, Torch
from tojax.flax.matching.pairing import Pairing, families, template
from tojax.flax.matching.running import Call, Runner, distance

MOST = 1000  # assignments that are tried for one submodule

Assignment = dict[Flax, Choice]
Family = list[list[Flax]]


class Search:
    """Open layers against the calls of torch submodules.

    Args:
      pairing: what is decided, and what is open.
      runner: runs the flax side.
      call: the torch side's call of a submodule, None where there is none.
      paths: of torch's submodules.
      example: what the flax module takes, None where that is not known.
      tolerance: the largest difference, as a fraction of the largest output.
      fixed: values of variables by path that no layer is behind.
    """

    def __init__(
        self,
        pairing: Pairing,
        runner: Runner,
        call: Callable[[str], Call | None],
        paths: Iterable[str],
        example: tuple | None,
        tolerance: float,
        fixed: Mapping[tuple, Any],
    ):
        self.fixed = fixed
        self.pairing, self.runner, self.call = pairing, runner, call
        self.paths, self.example, self.tolerance = list(paths), example, tolerance
        self.arrays: dict[Any, Any] = {}

    def settle(self) -> None:
        """Decides every family that exactly one assignment agrees for."""
        tried: set[Hashable] = set()
        while True:
            todo = families(self.pairing)
            for flax, torch in self.counterparts():
                inside = [(f, part) for f in todo if (part := _inside(f, flax))]
                key = (flax, torch, tuple(len(f) for f, _ in inside))
                if inside and key not in tried and self._large_enough(flax, inside):
                    tried.add(key)
                    if self._decide(flax, torch, inside):
                        break
            else:
                return

    def counterparts(self) -> list[tuple[tuple, str]]:
        """Submodules of both sides that hold the same layers, small ones first."""
        ours: dict[Flax, Hashable] = {}
        theirs: dict[Torch, Hashable] = {}
        for i, (f, (choice, _)) in enumerate(self.pairing.decided.items()):
            ours[f] = theirs[choice.torch] = i
        sizes: dict[Hashable, list[int]] = {}
        for i, group in enumerate(g for family in families(self.pairing) for g in family):
            label = ("open", i)
            torches = {c.torch for f in group for c in self.pairing.open[f]}
            sizes[label] = [len(group), len(torches)]
            ours |= dict.fromkeys(group, label)
            theirs |= dict.fromkeys(torches, label)

        def content(path: tuple[str, ...], layers: Mapping[Any, Hashable], side: int) -> frozenset:
            held = [x for layer, x in layers.items() if layer.parts[: len(path)] == path]
            whole = all(held.count(x) == sizes[x][side] for x in set(held) & sizes.keys())
            return frozenset(held) if whole else frozenset()

        by_content: dict[frozenset, list[str]] = {}
        for name in sorted(self.paths, key=lambda p: -p.count(".") if p else 1):
            if found := content(tuple(name.split(".")) if name else (), theirs, 1):
                by_content.setdefault(found, []).append(name)
        pairs = [
            (len(found), -len(path), path, name)
            for path in self.runner.modules
            if (found := content(tuple(map(str, path)), ours, 0))
            for name in by_content.get(found, ())
        ]
        return [(path, name) for *_, path, name in sorted(pairs, key=lambda p: p[:2])]

    def _large_enough(self, path: tuple, inside: list[tuple[Family, Family]]) -> bool:
        """A flattened map's order shows only together with the convolution that made the map."""
        layers = [f for _, part in inside for group in part for f in group]
        rows = any("channels last" in c.layout for f in layers for c in self.pairing.open[f])
        prefix = tuple(map(str, path))
        maps = (
            len(choice.torch.tensors["weight"].shape) > 2
            for f, (choice, _) in self.pairing.decided.items()
            if f.parts[: len(prefix)] == prefix and "weight" in choice.torch.tensors
        )
        return not rows or any(maps)

    def _decide(self, path: tuple, torch: str, inside: list[tuple[Family, Family]]) -> bool:
        options = [list(itertools.islice(_patterns(self.pairing, f), MOST + 1)) for f, _ in inside]
        if prod(map(len, options)) > MOST or (call := self.call(torch)) is None:
            return False
        good: list[list[list[Choice]]] = []
        for joint in itertools.product(*options):
            assignment: Assignment = {}
            for (_, part), pattern in zip(inside, joint):
                for group in part:
                    assignment |= _applied(self.pairing, group, pattern)
            error = self.distance(path, call, assignment)
            if np.isinf(error):  # it does not take what torch takes, whatever its weights are
                return False
            known = any(self._same(assignment, inside, other) for other in good)
            if error <= self.tolerance and not known:
                good.append(list(joint))
        if len(good) != 1:
            return False
        for (family, _), pattern in zip(inside, good[0]):
            for group in family:
                for f, choice in _applied(self.pairing, group, pattern).items():
                    self.pairing.take(f, choice, "agreement")
        return True

    def _same(self, assignment: Assignment, inside: Any, other: list[list[Choice]]) -> bool:
        """Whether another assignment gives all variables the same values."""
        theirs: Assignment = {}
        for (_, part), pattern in zip(inside, other):
            for group in part:
                theirs |= _applied(self.pairing, group, pattern)
        mine, their = self.values(assignment), self.values(theirs)
        return all(bool(jnp.array_equal(mine[p], their[p])) for p in mine)

    def distance(self, path: tuple, call: Call, assignment: Assignment) -> float:
        """How far the flax submodule's output is from torch's with these layers assigned."""
        prefix = tuple(map(str, path))
        decided = {f: c for f, (c, _) in self.pairing.decided.items()}
        held = {f: c for f, c in (decided | assignment).items() if f.parts[: len(prefix)] == prefix}
        args = self.example if not path else None
        values = self.values(held) | {p: v for p, v in self.fixed.items() if p[: len(path)] == path}
        return distance(self.runner, path, values, call, args)

    def values(self, assignment: Assignment) -> dict[tuple, Any]:
        """The values of the variables of these layers."""
        found: dict[tuple, Any] = {}
        for f, choice in assignment.items():
            key = (f, choice.torch, choice.layout)
            if key not in self.arrays:
                self.arrays[key] = {
                    x.slot.path: jnp.asarray(x.value(), x.slot.dtype) for x in choice.fills
                }
            found |= self.arrays[key]
        return found


def _inside(family: Family, path: tuple) -> Family:
    prefix = tuple(map(str, path))
    return [g for g in family if all(f.parts[: len(prefix)] == prefix for f in g)]


def _patterns(pairing: Pairing, family: Family) -> Iterator[list[Choice]]:
    """Choices for the layers of the family's first group, no torch layer twice."""

    def rest(layers: list[Flax], used: set[Torch]) -> Iterator[list[Choice]]:
        if not layers:
            yield []
            return
        for choice in pairing.open[layers[0]]:
            if choice.torch not in used:
                for others in rest(layers[1:], used | {choice.torch}):
                    yield [choice, *others]

    return rest(family[0], set())


def _applied(pairing: Pairing, group: list[Flax], pattern: list[Choice]) -> Assignment:
    """The pattern of a family's first group for another of its groups."""
    found: Assignment = {}
    for f, choice in zip(group, pattern):
        ways = pairing.open[f]
        same = [
            c
            for c in ways
            if c.layout == choice.layout
            and template(pairing.torch_names[c.torch])
            == template(pairing.torch_names[choice.torch])
        ]
        if choice in ways or same:
            found[f] = choice if choice in ways else same[0]
    return found
