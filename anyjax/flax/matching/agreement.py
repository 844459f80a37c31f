"""Open layers decided by outputs: a submodule of either side runs on the same input, and the only
assignment for which the outputs agree is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from anyjax.flax.matching.layer import Choice, Flax, Torch
from anyjax.flax.matching.pairing import Pairing, families, template
from anyjax.flax.matching.sides import JaxSide
from anyjax.flax.matching.submodule_runs import Call

MAX_ASSIGNMENTS = 1000  # tried for one submodule

Assignment = dict[Flax, Choice]
Family = list[list[Flax]]


class Search:
    """A search for the assignments of open layers that agree with the calls of torch submodules.

    Args:
      pairing: the decided and the open layers.
      side: the flax side.
      call: returns the torch side's call of a submodule, or None.
      paths: of torch's submodules.
      example: the arguments of the flax module, None if unknown.
      tolerance: the largest difference, as a fraction of the largest output.
      fixed: values of variables by path that the user gave.
    """

    def __init__(
        self,
        pairing: Pairing,
        side: JaxSide,
        call: Callable[[str], Call | None],
        paths: Iterable[str],
        example: tuple | None,
        tolerance: float,
        fixed: Mapping[tuple, Any],
    ):
        self.fixed = fixed
        self.pairing, self.side, self.call = pairing, side, call
        self.paths, self.example, self.tolerance = list(paths), example, tolerance
        self.arrays: dict[Any, Any] = {}

    def decide_all(self) -> None:
        """Decides every family for which exactly one assignment agrees."""
        tried: set[Hashable] = set()
        while True:
            open_families = families(self.pairing)
            for flax, torch in self.counterparts():
                inside = [(f, groups) for f in open_families if (groups := _inside(f, flax))]
                key = (flax, torch, tuple(len(f) for f, _ in inside))
                if inside and key not in tried and self._large_enough(flax, inside):
                    tried.add(key)
                    if self._decide(flax, torch, inside):
                        break
            else:
                return

    def counterparts(self) -> list[tuple[tuple, str]]:
        """Returns (flax path, torch path) of submodules with the same layers, small ones first."""
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
            labels = [x for layer, x in layers.items() if layer.parts[: len(path)] == path]
            complete = all(labels.count(x) == sizes[x][side] for x in set(labels) & sizes.keys())
            return frozenset(labels) if complete else frozenset()

        by_content: dict[frozenset, list[str]] = {}
        for name in sorted(self.paths, key=lambda p: -p.count(".") if p else 1):
            if labels := content(tuple(name.split(".")) if name else (), theirs, 1):
                by_content.setdefault(labels, []).append(name)
        pairs = [
            (len(labels), -len(path), path, name)
            for path in self.side.modules
            if (labels := content(tuple(map(str, path)), ours, 0))
            for name in by_content.get(labels, ())
        ]
        return [(path, name) for *_, path, name in sorted(pairs, key=lambda p: p[:2])]

    def _large_enough(self, path: tuple, inside: list[tuple[Family, Family]]) -> bool:
        """Returns True unless the layers follow a flattened map whose convolution is outside: only
        together with it their outputs tell the order of the map.
        """
        layers = [f for _, groups in inside for group in groups for f in group]
        rows = any("channels last" in c.layout for f in layers for c in self.pairing.open[f])
        maps = (
            len(choice.torch.tensors["weight"].shape) > 2
            for f, (choice, _) in self.pairing.decided.items()
            if f.is_inside(path) and "weight" in choice.torch.tensors
        )
        return not rows or any(maps)

    def _decide(self, path: tuple, torch: str, inside: list[tuple[Family, Family]]) -> bool:
        """Decides the families inside of a submodule; returns False if that is not possible."""
        options = [
            list(itertools.islice(_patterns(self.pairing, f), MAX_ASSIGNMENTS + 1))
            for f, _ in inside
        ]
        if prod(map(len, options)) > MAX_ASSIGNMENTS or (call := self.call(torch)) is None:
            return False
        agreeing: list[list[list[Choice]]] = []
        for joint in itertools.product(*options):
            assignment = self._joint_assignment(inside, joint)
            error = self.distance(path, call, assignment)
            if np.isinf(error):  # it cannot be called as torch's, with any weights
                return False
            earlier = (self._joint_assignment(inside, patterns) for patterns in agreeing)
            is_duplicate = any(self._same_values(assignment, x) for x in earlier)
            if error <= self.tolerance and not is_duplicate:
                agreeing.append(list(joint))
        if len(agreeing) != 1:
            return False
        for (family, _), pattern in zip(inside, agreeing[0]):
            for group in family:
                for f, choice in _apply_pattern(self.pairing, group, pattern).items():
                    self.pairing.take(f, choice, "agreement")
        return True

    def _joint_assignment(
        self, inside: list[tuple[Family, Family]], patterns: Iterable[list[Choice]]
    ) -> Assignment:
        """Returns the choices of all groups in a submodule by a pattern for each family."""
        assignment: Assignment = {}
        for (_, groups), pattern in zip(inside, patterns):
            for group in groups:
                assignment |= _apply_pattern(self.pairing, group, pattern)
        return assignment

    def _same_values(self, one: Assignment, other: Assignment) -> bool:
        """Returns whether two assignments give all variables the same values."""
        values, expected = self.values(one), self.values(other)
        return all(bool(jnp.array_equal(values[p], expected[p])) for p in values)

    def distance(self, path: tuple, call: Call, assignment: Assignment) -> float:
        """Returns how far the flax submodule's output is from torch's with this assignment."""
        choices = {f: c for f, (c, _) in self.pairing.decided.items()} | assignment
        inner = {f: c for f, c in choices.items() if f.is_inside(path)}
        args = self.example if not path else None
        fixed = {p: v for p, v in self.fixed.items() if p[: len(path)] == path}
        return self.side.distance(path, self.values(inner) | fixed, call, args)

    def values(self, assignment: Assignment) -> dict[tuple, Any]:
        """Returns the values of the variables of these layers."""
        values: dict[tuple, Any] = {}
        for f, choice in assignment.items():
            key = (f, choice.torch, choice.layout)
            if key not in self.arrays:
                self.arrays[key] = {
                    x.slot.path: jnp.asarray(x.value(), x.slot.dtype) for x in choice.fills
                }
            values |= self.arrays[key]
        return values


def _inside(family: Family, path: tuple) -> Family:
    return [g for g in family if all(f.is_inside(path) for f in g)]


def _patterns(pairing: Pairing, family: Family) -> Iterator[list[Choice]]:
    """Yields choices for the layers of the family's first group, no torch layer twice."""

    def assignments(layers: list[Flax], used: set[Torch]) -> Iterator[list[Choice]]:
        if not layers:
            yield []
            return
        for choice in pairing.open[layers[0]]:
            if choice.torch not in used:
                for following in assignments(layers[1:], used | {choice.torch}):
                    yield [choice, *following]

    return assignments(family[0], set())


def _apply_pattern(pairing: Pairing, group: list[Flax], pattern: list[Choice]) -> Assignment:
    """Returns the pattern of a family's first group, applied to another of its groups."""
    assignment: Assignment = {}
    for f, choice in zip(group, pattern):
        choices = pairing.open[f]
        place = lambda c: (c.layout, template(pairing.torch_names[c.torch]))
        same = [c for c in choices if place(c) == place(choice)]
        if choice in choices or same:
            assignment[f] = choice if choice in choices else same[0]
    return assignment
