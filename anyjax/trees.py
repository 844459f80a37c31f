"""Any container of arrays becomes a JAX pytree, so that users register nothing by hand.

Tuples, lists, dicts and whatever is registered already are left to JAX. A dataclass (model outputs,
which are dicts as well) is flattened by its fields, any other object that holds arrays (caches and
their layers) by its attributes: those with arrays in them are children under their own names, the
rest is static.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeGuard

import jax
import numpy as np
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, default_registry

from anyjax.typing import PyTree

WRITTEN = 1 << 9  # the flag of classes that are written in Python
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def is_array(x: object) -> TypeGuard[Any]:
    """Returns whether ``x`` is an array of any framework: it has a shape and a dtype.

    Example:
      >>> import numpy as np
      >>> is_array(np.zeros(2)), is_array([1, 2])
      (True, False)
    """
    return hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, type)


STATE = "the state"  # in errors, beside the names of arguments
FEW = 64


def is_setting(x: Any) -> bool:
    """Returns whether an array is one of a few integers or bools whose values are known: sizes,
    flags.

    Example:
      >>> import numpy as np
      >>> is_setting(np.arange(3)), is_setting(np.zeros(3)), is_setting(np.arange(1000))
      (True, False, False)
    """
    return not isinstance(x, jax.core.Tracer) and x.dtype.kind in "iub" and x.size <= FEW


class Written(dict[str, jax.Array]):
    """The entries of the state that a forward pass wrote, by name.

    Attributes:
      missed: names of entries whose old values it read: a call without the new ones is another one.
      holds: whether the output is valid, a bool or a traced one; None where nothing tells.
      unchecked: the operator of integers in an output that would not show an overflow.
      stepped: whether small numbers are added to integers, which nothing checks in the program.

    Example:
      >>> Written({"mean": 1.0, "last": 2.0}, {"mean"}).missed
      {'mean'}
    """

    def __init__(
        self,
        written: Mapping[str, PyTree],
        missed: Set[str],
        holds: object = None,
        unchecked: str | None = None,
        stepped: bool = False,
    ):
        super().__init__(written)
        self.missed, self.holds = missed, holds
        self.unchecked, self.stepped = unchecked, stepped


class Static:
    """A value that rides in a tree's structure: compared with ``==``, hashed where it can be.

    Example:
      >>> Static([1, 2]) == Static([1, 2])
      True
    """

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        if not isinstance(other, Static) or type(self.value) is not type(other.value):
            return False
        if isinstance(self.value, (float, complex)):  # NaN is itself, and 0.0 is not -0.0
            return repr(self.value) == repr(other.value)
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self):
        try:
            return hash((type(self.value), self.value))
        except TypeError:
            return hash(type(self.value))

    def __repr__(self):
        return f"Static({self.value!r})"


class Constant:
    """An array that is known while tracing: compared and hashed by its content.

    Example:
      >>> import numpy as np
      >>> Constant(np.arange(3)) == Constant(np.arange(3))
      True
    """

    __slots__ = ("array",)

    def __init__(self, array):
        self.array = np.asarray(array)

    def _content(self):
        return self.array.dtype.str, self.array.shape, self.array.tobytes()

    def __eq__(self, other):
        return isinstance(other, Constant) and self._content() == other._content()

    def __hash__(self):
        return hash(self._content())


jax.tree_util.register_pytree_node(Static, lambda s: ((), s), lambda s, _: s)


def names(args: tuple, kwargs: dict, positional: Sequence[str] = ()) -> list[str]:
    """Returns a name for every leaf of a call's arguments, as the user would write it.

    Example:
      >>> names((1, [2, 3]), {"mask": 4}, ["x", "pair"])
      ['x', 'pair[0]', 'pair[1]', 'mask']
    """
    leaf_names = []
    for path, _ in jax.tree_util.tree_flatten_with_path((args, kwargs))[0]:
        kind, key, rest = path[0].idx, path[1], path[2:]
        if kind == 1:
            name = key.key
        else:
            name = positional[key.idx] if key.idx < len(positional) else f"args[{key.idx}]"
        leaf_names.append(name + jax.tree_util.keystr(rest))
    return leaf_names


def plain_leaves(tree: PyTree) -> tuple[dict[str, Any], Any]:
    """Returns (the leaves of tuples, lists and dicts by place, the structure); objects of other
    classes are leaves.

    Example:
      >>> plain_leaves((1, {"a": [2]}))[0]
      {'[0]': 1, "[1]['a'][0]": 2}
    """
    is_leaf = lambda x: not isinstance(x, (tuple, list, dict))
    leaves, structure = jax.tree.flatten_with_path(tree, is_leaf=is_leaf)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}, structure


def register(tree: PyTree) -> Any:
    """Registers every container class found in ``tree`` with JAX; returns ``tree``.

    Example:
      >>> import numpy as np, types
      >>> box = register(types.SimpleNamespace(size=3, weight=np.ones(2)))
      >>> [len(x) for x in jax.tree.leaves(box)]
      [2]
    """
    _register(tree, set())
    return tree


def _register(node: object, seen: set[int]) -> None:
    if isinstance(node, PLAIN) or is_array(node) or id(node) in seen:
        return
    seen.add(id(node))
    if type(node) is dict:  # JAX would sort its keys, which may be of several types
        for child in node.values():
            _register(child, seen)
        return
    if isinstance(node, tuple):
        _adopt_checked(type(node))
    level = default_registry.flatten_one_level(node)
    if level is None and hasattr(
        type(node), "n_sequence_fields"
    ):  # a struct sequence, such as torch.return_types
        _adopt_sequence(type(node))
        level = default_registry.flatten_one_level(node)
    elif level is None and isinstance(node, (tuple, list)) and type(node).__flags__ & WRITTEN:
        _adopt_items(type(node))
        level = default_registry.flatten_one_level(node)
    elif level is None and _is_container(node):
        _adopt(type(node))
        level = default_registry.flatten_one_level(node)
    for child in level[0] if level else ():
        _register(child, seen)


def _is_container(node: object) -> bool:
    if isinstance(node, type) or not hasattr(node, "__dict__"):
        return False
    if dataclasses.is_dataclass(node) or isinstance(node, dict):
        return True
    return any(_is_dynamic(v, {id(node)}) for v in vars(node).values())


def _is_dynamic(value: object, seen: set[int]) -> bool:
    """Returns whether arrays (or what a tree transformation puts in their place) are inside
    ``value``.
    """
    if isinstance(value, (*PLAIN, type)) or callable(value) or id(value) in seen:
        return False
    if is_array(value) or isinstance(value, Constant) or type(value) is object:
        return True
    seen = seen | {id(value)}
    level = default_registry.flatten_one_level(value)
    children = level[0] if level else getattr(value, "__dict__", {}).values()
    return any(_is_dynamic(child, seen) for child in children)


def _adopt_sequence(cls: type) -> None:
    jax.tree_util.register_pytree_node(
        cls, lambda x: (tuple(x), None), lambda _, children: cls(children)
    )


@functools.cache
def _adopt_checked(cls: type) -> None:
    """Adopts a named tuple whose own ``__new__`` checks its fields, as torch's PackedSequence has:
    JAX would call it with what a transformation puts in the place of arrays.
    """
    named = next((x for x in cls.__mro__ if "_fields" in vars(x)), None)
    if named is not None and cls.__new__ is not named.__new__:
        _adopt_items(cls)


def _adopt_items(cls: type) -> None:
    """A class of tuples or lists, whose ``__new__`` may take anything; attributes are static."""
    base: Any = tuple if issubclass(cls, tuple) else list

    def split(x):
        attributes = Static(dict(vars(x)) if hasattr(x, "__dict__") else {})
        return [(SequenceKey(i), value) for i, value in enumerate(x)], attributes

    def join(attributes, children):
        new: Any = tuple.__new__(cls, children) if base is tuple else list.__new__(cls)
        if base is list:
            list.extend(new, children)
        for name, value in attributes.value.items():
            object.__setattr__(new, name, value)
        return new

    jax.tree_util.register_pytree_with_keys(cls, split, join)


def _adopt(cls: type) -> None:
    mapping, data = issubclass(cls, dict), dataclasses.is_dataclass(cls)
    store = OrderedDict.__setitem__ if issubclass(cls, OrderedDict) else dict.__setitem__

    def split(x):
        values = (
            {f.name: getattr(x, f.name, None) for f in dataclasses.fields(x)}
            if data
            else dict(vars(x))
        )
        if mapping:  # in its own order, which positions in it follow
            values = {**x, **values, **x}
        if data or mapping:
            dynamic = [k for k, v in values.items() if not isinstance(v, PLAIN)]
        else:
            dynamic = [k for k, v in values.items() if _is_dynamic(v, {id(x)})]
        static = {k: v for k, v in values.items() if k not in dynamic}
        return [(GetAttrKey(k), values[k]) for k in dynamic], (tuple(dynamic), Static(static))

    def join(aux, children):
        names, static = aux
        values = {**static.value, **dict(zip(names, children))}
        new: Any = object.__new__(cls) if not mapping else dict.__new__(cls)
        for name, value in values.items():
            object.__setattr__(new, name, value)
            if mapping and not (data and value is None):
                store(new, name, value)
        return new

    def flatten(x):
        children, aux = split(x)
        return [child for _, child in children], aux

    jax.tree_util.register_pytree_with_keys(cls, split, join, flatten)


# Dicts that keep the order of their keys where JAX, which sorts them, maps over a tree.


class Ordered(dict):
    """A dict that comes out of ``jax.tree.map`` and ``jax.jit`` in this order."""


def _joined(keys: tuple, values: Iterable[object]) -> Ordered:
    return Ordered(zip(keys, values))


jax.tree_util.register_pytree_with_keys(
    Ordered, lambda tree: ([(DictKey(k), v) for k, v in tree.items()], (*tree,)), _joined
)


def keep_order(tree: PyTree) -> Any:
    """Returns the tree with Ordered for dicts whose keys JAX would put into another order.

    Example:
      >>> import jax
      >>> tree = {"b": 1, "a": 2}
      >>> list(jax.tree.map(abs, tree)), list(jax.tree.map(abs, keep_order(tree)))
      (['a', 'b'], ['b', 'a'])
    """

    def one(found: dict[Any, Any]) -> dict[Any, Any]:
        inside = {k: keep_order(v) for k, v in found.items()}
        return inside if _sorted(found) else Ordered(inside)

    return _each((dict,), one, tree)


def plain_dicts(tree: PyTree) -> Any:
    """Returns the tree with dicts again.

    Example:
      >>> plain_dicts(keep_order({"b": 1, "a": 2}))
      {'b': 1, 'a': 2}
    """
    # of dicts, too: with others inside of it JAX would make a new, sorted one
    return _each((dict, Ordered), lambda found: {k: plain_dicts(v) for k, v in found.items()}, tree)


def _each(kinds: tuple[type, ...], convert: Callable[[Any], Any], tree: PyTree) -> Any:
    """Returns the tree with the outermost of these classes converted."""
    is_kind = lambda x: type(x) in kinds
    if not any(map(is_kind, jax.tree.leaves(tree, is_leaf=is_kind))):
        return tree
    return jax.tree.map(lambda x: convert(x) if is_kind(x) else x, tree, is_leaf=is_kind)


def _sorted(tree: dict[Any, Any]) -> bool:
    try:
        return [*tree] == sorted(tree)
    except TypeError:  # JAX refuses to sort these
        return False
