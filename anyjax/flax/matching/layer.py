"""A layer of either side: arrays that belong together, and are matched as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Tensor(NamedTuple):
    """An array of the torch side: a stored one, or a slice or sum of stored ones."""

    label: str  # as the report shows it
    sources: tuple[str, ...]  # names of the stored arrays that it is computed from
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


@dataclass(frozen=True, eq=False)
class Torch:
    """A layer of the torch side.

    Attributes:
      path: of the module, dotted.
      kind: by its class; without a module by names and shapes, "" if these are ambiguous.
      tensors: by role: "weight", "bias", "mean", "var"; in recurrent cells by torch's own names.
      tied: the roles whose array is another layer's, too.
    """

    path: str
    kind: str
    tensors: dict[str, Tensor]
    module: Any = None
    tied: frozenset[str] = frozenset()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.split(".")) if self.path else ()

    @property
    def shown(self) -> str:
        """The path; at the root, the label of an array."""
        return self.path or min(self.tensors.items(), key=lambda t: t[0] != "weight")[1].label


class Slot(NamedTuple):
    """A variable of the flax module, to be filled."""

    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: Any
    needed: bool  # False: it may stay as it is
    value: Any = None

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))


@dataclass(frozen=True, eq=False)
class Flax:
    """A layer of the flax side; ``slots`` by role, or by path inside of a recurrent cell."""

    path: tuple[Any, ...]
    kind: str
    slots: dict[str, Slot]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(map(str, self.path))

    @property
    def name(self) -> str:
        return "/".join(self.parts)

    def is_inside(self, path: tuple) -> bool:
        """Returns whether the layer belongs to the submodule at a path, or is it."""
        return self.parts[: len(path)] == tuple(map(str, path))

    @property
    def shown(self) -> str:
        """The path; at the root, the name of a variable."""
        return self.name or min(self.slots.items(), key=lambda s: s[0] != "weight")[1].name


class Layout(NamedTuple):
    """A rule that turns a torch array into a variable's value: ``take`` reorders its numbers."""

    name: str
    take: Callable[[np.ndarray], np.ndarray]


AS_IS = Layout("as it is", lambda a: a)


class Fill(NamedTuple):
    """A variable with the array that fills it."""

    slot: Slot
    tensor: Tensor
    layout: Layout

    def value(self) -> np.ndarray:
        return self.layout.take(self.tensor.read())


class Choice(NamedTuple):
    """A torch layer for a flax layer, with a layout for each of its variables.

    ``sure`` is False if other layouts fit as well and the kinds of layers do not decide.
    """

    torch: Torch
    fills: tuple[Fill, ...]
    sure: bool = True

    @property
    def layout(self) -> str:
        return self.fills[0].layout.name
