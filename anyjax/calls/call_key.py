"""Keys of calls: one dict lookup in place of the checks of a first call.

A first call names its arguments, registers their classes and is checked leaf by leaf. All of that
is the same for the next call of its kind, which goes from its leaves to the compiled program.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import jax

from anyjax import trees
from anyjax.trees import Static

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef

    from anyjax.source import Source

ARRAY, FOREIGN, FLOAT, PLAIN, OTHER = range(5)
_HOW: dict[type, int] = {}


class CallKind:
    """The part of a call that is compiled into its program.

    Attributes:
      structure: of the arguments.
      static: for each leaf how it is static, None where it is traced.
      known: the entries of the state that are static.
      fresh: a program was traced since the shapes of a call were last looked at.
      wraps: the output has leaves that are no arrays.
      unchecked, stepped: as ``trees.Written`` has them.
    """

    __slots__ = (
        "_hash", "fresh", "known", "static", "stepped", "structure", "unchecked", "wraps",
    )  # fmt: skip

    def __init__(self, structure: PyTreeDef, static: tuple[Static | None, ...], known: Static):
        self.structure, self.static, self.known = structure, static, known
        self.fresh = self.wraps = self.stepped = False
        self.unchecked: str | None = None
        self._hash = hash((structure, static, known))

    def __hash__(self):
        return self._hash

    def __eq__(self, other):
        return isinstance(other, CallKind) and self._parts() == other._parts()

    def _parts(self):
        return self.structure, self.static, self.known

    def known_to(self, source: Source) -> CallKind:
        """Returns the one object for all equal kinds of a source: programs mark it."""
        return source.cache.call_kinds.setdefault(self, self)


def key_and_arrays(
    source: Source, leaves: list[object], structure: PyTreeDef
) -> tuple[Hashable, list[Any]] | None:
    """Returns (a key for calls of this kind, the arrays), None for leaves that have to be looked
    at.

    Example:
      >>> import numpy as np, torch
      >>> source = anyjax.from_torch(torch.nn.ReLU()).source
      >>> key = lambda *leaves: key_and_arrays(source, leaves, None)[0]
      >>> x = np.ones(2, np.float32)
      >>> key(x, 1) == key(x + 1, 1), key(x, 1) == key(x, True), key(0.0) == key(-0.0)
      (True, False, False)
    """
    key, arrays = [structure, source.flags], []
    for leaf in leaves:
        kind = type(leaf)
        how = _HOW.get(kind)
        if how is None:
            how = _HOW[kind] = _how(kind, leaf)
        if how == ARRAY:
            key.append(ARRAY)
            arrays.append(leaf)
        elif how == FOREIGN:
            leaf = source.as_array(leaf)
            if not trees.is_array(leaf):  # text
                return None
            key.append(ARRAY)
            arrays.append(leaf)
        elif how == OTHER:
            return None
        else:
            key += kind, repr(leaf) if how == FLOAT else leaf
    return tuple(key), arrays


def _how(kind: type, leaf: object) -> int:
    if issubclass(kind, jax.core.Tracer):
        return OTHER
    if isinstance(leaf, jax.Array):
        return ARRAY
    if trees.is_array(leaf):
        return FOREIGN
    return (FLOAT if kind in (float, complex) else PLAIN) if kind in trees.PLAIN else OTHER
