"""Dicts whose keys keep their order where JAX, which sorts them, takes a tree apart and puts it
together again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.tree_util import DictKey


class Ordered(dict):
    """A dict that comes out of ``jax.tree.map`` and ``jax.jit`` in this order."""


def _with_keys(tree: Ordered) -> tuple[Any, Any]:
    return [(DictKey(k), v) for k, v in tree.items()], (*tree,)


def _joined(keys: tuple, values: Iterable[Any]) -> Ordered:
    return Ordered(zip(keys, values))


jax.tree_util.register_pytree_with_keys(Ordered, _with_keys, _joined)


def kept(tree: Any) -> Any:
    """The tree with Ordered for dicts whose keys JAX would put into another order.

    Example:
      >>> import jax
      >>> list(jax.tree.map(abs, {"b": 1, "a": 2})), list(jax.tree.map(abs, kept({"b": 1, "a": 2})))
      (['a', 'b'], ['b', 'a'])
    """

    def one(found: dict[Any, Any]) -> dict[Any, Any]:
        inside = {k: kept(v) for k, v in found.items()}
        return inside if _sorted(found) else Ordered(inside)

    return _each(dict, one, tree)


def plain(tree: Any) -> Any:
    """The tree with dicts again.

    Example:
      >>> plain(kept({"b": 1, "a": 2}))
      {'b': 1, 'a': 2}
    """
    # of dicts, too: with others inside of it JAX would make a new, sorted one
    convert = lambda found: {k: plain(v) for k, v in found.items()}
    return _each(dict, convert, _each(Ordered, convert, tree))


def _each(kind: type, convert: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with the outermost of this class converted."""
    here = lambda x: type(x) is kind
    if not any(map(here, jax.tree.leaves(tree, is_leaf=here))):
        return tree
    return jax.tree.map(lambda x: convert(x) if here(x) else x, tree, is_leaf=here)


def _sorted(tree: dict[Any, Any]) -> bool:
    try:
        return [*tree] == sorted(tree)
    except TypeError:  # JAX refuses to sort these
        return False
