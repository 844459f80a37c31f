"""Which arrays become one stack, and its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from tojax.transforms.rolling.repeats import Repeat, weights
from tojax.transforms.rolling.rolled import Group, Traced


def groups(found: Traced, loops: Iterable[Repeat]) -> tuple[Group, ...]:
    """Params and state of which the rounds of a loop have one each; an array is in one group."""
    program, names = found.program, found.program.names
    lists = [tuple(names[v] for v in xs) for loop in loops for xs in weights(program, loop)]
    taken: set[str] = set()
    chosen: list[tuple[str, ...]] = []
    for members in lists:
        if taken.isdisjoint(members):
            taken.update(members)
            chosen.append(members)
    rest = {*names.values()} - taken
    plain = [name_of(members) for members in chosen]
    return tuple(
        Group(name if plain.count(name) == 1 and name not in rest else "|".join(members), members)
        for name, members in zip(plain, chosen)
    )


def name_of(members: Sequence[str]) -> str:
    """One name for all: ``*`` in the place of numbers that count on by one, ``2n+1`` of those that
    count on by two, and so on.

    Example:
      >>> name_of(["layers.0.weight", "layers.1.weight", "layers.2.weight"])
      'layers.*.weight'
      >>> name_of(["layers.1.weight", "layers.3.weight", "layers.5.weight"])
      'layers.2n+1.weight'
      >>> name_of(["first.weight", "second.weight"])
      'first|second.weight'
    """
    parts = [name.split(".") for name in members]
    if len({*map(len, parts)}) > 1:
        return "|".join(members)
    return ".".join(map(_part, zip(*parts)))


def _part(words: Sequence[str]) -> str:
    if len({*words}) == 1:
        return words[0]
    if all(word.isdecimal() for word in words):
        first, step = int(words[0]), int(words[1]) - int(words[0])
        if [int(word) for word in words] == [first + step * i for i in range(len(words))]:
            return "*" if step == 1 else f"{step}n" + (f"+{first}" if first else "")
    return "|".join(words)


def stacked(arrays: dict[str, Any], groups: Sequence[Group]) -> dict[str, Any]:
    """The arrays with the groups' as stacks, where the first of each was; ``arrays`` is emptied on
    the way, so that those that nobody else holds make room.
    """
    first = {group.members[0]: group for group in groups}
    inside = {name for group in groups for name in group.members}
    found = {}
    for name in [*arrays]:
        if name in first:
            found[first[name].name] = _stack([arrays.pop(m) for m in first[name].members])
        elif name not in inside:
            found[name] = arrays.pop(name)
    return found


def _stack(rows: Sequence[Any]) -> jax.Array:
    """[rows, ...], divided over a mesh as the rows are."""
    sharding = getattr(rows[0], "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return jnp.stack(rows)
    there = NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))
    return jax.jit(lambda xs: jnp.stack(xs), out_shardings=there)([*rows])
