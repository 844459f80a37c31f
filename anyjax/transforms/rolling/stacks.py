"""Stacks of the arrays of repeated layers, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from anyjax.transforms.rolling.repeats import Repeat, weights
from anyjax.transforms.rolling.rolled import Group, TracedCall


def groups(call: TracedCall, loops: Iterable[Repeat]) -> tuple[Group, ...]:
    """Returns the arrays to stack: params and state of which every round of a loop has its own. No
    array is in two groups.
    """
    program, names = call.program, call.program.names
    candidates = [tuple(names[v] for v in xs) for loop in loops for xs in weights(program, loop)]
    in_stacks: set[str] = set()
    stacks: list[tuple[str, ...]] = []
    for members in candidates:
        if in_stacks.isdisjoint(members):
            in_stacks.update(members)
            stacks.append(members)
    unstacked = {*names.values()} - in_stacks
    short_names = [name_of(members) for members in stacks]
    is_unique = lambda name: short_names.count(name) == 1 and name not in unstacked
    return tuple(
        Group(name if is_unique(name) else "|".join(members), members)
        for name, members in zip(short_names, stacks)
    )


def name_of(members: Sequence[str]) -> str:
    """Returns a common name, with ``*`` for numbers that increase by one, ``2n+1`` for numbers that
    increase by two, and so on.

    Example:
      >>> name_of(["layers.0.weight", "layers.1.weight", "layers.2.weight"])
      'layers.*.weight'
      >>> name_of(["layers.1.weight", "layers.3.weight", "layers.5.weight"])
      'layers.2n+1.weight'
      >>> name_of(["first.weight", "second.weight"])
      'first|second.weight'
    """
    paths = [name.split(".") for name in members]
    if len({*map(len, paths)}) > 1:
        return "|".join(members)
    return ".".join(map(_common_word, zip(*paths)))


def _common_word(words: Sequence[str]) -> str:
    if len({*words}) == 1:
        return words[0]
    if all(word.isdecimal() for word in words):
        first, step = int(words[0]), int(words[1]) - int(words[0])
        if [int(word) for word in words] == [first + step * i for i in range(len(words))]:
            return "*" if step == 1 else f"{step}n" + (f"+{first}" if first else "")
    return "|".join(words)


def stacked(arrays: dict[str, jax.Array], groups: Sequence[Group]) -> dict[str, Any]:
    """Returns the arrays with a stack in the place of each group's first member. ``arrays`` is
    emptied meanwhile, so that memory of arrays without other owners is freed.
    """
    by_first = {group.members[0]: group for group in groups}
    members = {name for group in groups for name in group.members}
    result = {}
    for name in [*arrays]:
        if name in by_first:
            group = by_first[name]
            result[group.name] = _stack([arrays.pop(member) for member in group.members])
        elif name not in members:
            result[name] = arrays.pop(name)
    return result


def _stack(rows: Sequence[jax.Array]) -> jax.Array:
    sharding = getattr(rows[0], "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return jnp.stack(rows)
    of_stack = NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec))
    return jax.jit(lambda xs: jnp.stack(xs), out_shardings=of_stack)([*rows])
