"""State besides parameters and buffers: tensors and numbers in plain attributes, also inside of
lists, tuples, dicts and objects of classes that are not a library's own.

    self.hidden = None                            # state["hidden.0"], state["hidden.1"]
    out, self.hidden = self.lstm(x, self.hidden)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import torch

from anyjax import trees
from anyjax.errors import Unsupported
from anyjax.torch.core import private
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.lifting import array_of, inner, lift, value_in
from anyjax.torch.core.modules import named_modules
from anyjax.torch.core.tensor import JaxTensor, value_of
from anyjax.torch.objects.contents import NUMBERS, Variables, View, items, restore, snapshot
from anyjax.torch.objects.functions import Function
from anyjax.torch.objects.outside import outside
from anyjax.torch.objects.walk import Walk, grown, key_name, tree
from anyjax.torch.state import none_attributes
from anyjax.torch.state.uncarried import Uncarried

OWN = {*vars(torch.nn.Module())}  # what torch itself keeps in every module
TENSORS = {torch.Tensor, torch.nn.Parameter}

# The name of what a module or function refers to, what holds it, the key, and whether it is loose:
# held by a function's variables, or outside of the module.
Root = tuple[str, Any, Any, bool]


class AttributeState:
    """The attributes of a module that are state, by name: the path and the keys that lead there,
    with dots. The ``places`` (id of the holder, key) are those of parameters and buffers, which do
    not count, ``names`` those of their tensors by ``id``. Numbers around a function are state where
    it ``steps`` an optimizer.
    """

    places: Container[tuple[int, str]] = frozenset()
    names: Mapping[int, str] = MappingProxyType({})
    steps = False

    def __init__(self, module: torch.nn.Module):
        self.module, self.outside = module, outside(module)

    def leaves(self) -> dict[str, Any]:
        """Everything as it is now."""
        leaves: dict[str, Any] = {}
        self.walk(leaves.setdefault, lambda name, holder, loose: None, self.names)
        return leaves

    def roots(self) -> list[Root]:
        """Everything that the module refers to by itself."""
        roots: list[Root] = []
        names: set[str] = set()
        for path, child in named_modules(self.module).items():
            inside = f"{path}." if path else ""
            if isinstance(child, Function):
                roots += [(inside + k, *place, True) for k, place in child.captured.items()]
                continue
            holder = vars(child)
            names.update(holder)
            roots += [(inside + k, holder, k, False) for k in holder if k not in OWN]
            for tensors in (child._parameters, child._buffers):
                for key in tensors.keys():  # noqa: SIM118  TorchScript's have no __iter__
                    if (id(tensors), key) not in self.places:
                        roots.append((inside + key, tensors, key, False))
        for name, holder, key in self.outside:
            while name in names:
                name += "_"
            roots.append((name, holder, key, True))
        return roots

    def walk(
        self,
        leaf: Callable[[str, Any], Any],
        visit: Callable[[str, Any, bool], None],
        names: Mapping[int, str],
        copies: dict[int, Iterator] | None = None,
    ) -> list[Root]:
        """Goes through everything, see Walk; returns the roots."""
        roots = self.roots()
        seen = {*map(id, named_modules(self.module).values())}
        seen |= {id(holder.function) for _, holder, _, _ in roots if type(holder) is Variables}
        walk = Walk(leaf, visit, seen, names, copies)
        for name, holder, key, loose in roots:
            value = holder[key]
            loose = loose and not self.steps
            if isinstance(value, NUMBERS):  # most of them
                new = value if loose else leaf(name, value)
            else:
                new = walk(name, value, loose)
            if new is not value:
                holder[key] = new
        return roots

    @contextlib.contextmanager
    def filled(
        self,
        tensors: Mapping[str, torch.Tensor],
        weights: Mapping[int, torch.Tensor],
        uncarried: Uncarried,
    ) -> Iterator[Callable[[], trees.Written]]:
        """Tensors of this name in place of what is kept, the trace's weights, given by the ``id``
        of the module's, and constants that may be written to. Yields what tells what was written.

        On leaving, lists, dicts and objects are what they were; the modules are the caller's, and
        around a function what is no tensor stays: code may count how often it is traced.
        """
        filling = Filling(self, tensors, weights, uncarried)
        try:
            filling.begin()
            yield filling.written
        finally:
            filling.restore()


class Filling:
    """One run of the code: the tensors in the places of the attributes, and what was there."""

    def __init__(self, attributes, tensors, weights, uncarried: Uncarried):
        self.attributes: AttributeState = attributes
        self.tensors: Mapping[str, torch.Tensor] = tensors
        self.weights: Mapping[int, torch.Tensor] = weights
        self.uncarried = uncarried
        names = attributes.names
        self.names = {**names, **{id(t): names[k] for k, t in weights.items() if k in names}}
        self.holders: list[tuple[Any, Any, bool]] = []
        self.loose = [(x, k, x[k]) for _, x, k, loose in attributes.roots() if loose]
        self.lifted: dict[int, torch.Tensor] = {}
        self.start: dict[str, Any] = {}

    def begin(self) -> None:
        """Puts the tensors there, and those of names that nothing has yet."""
        roots = self.attributes.walk(self.fill, self.visit, self.names, {})
        self.outer = (*(f"{name}." for name, _, _, loose in roots if loose),)
        if additions := {k: t for k, t in self.tensors.items() if k not in self.start}:
            self._grow(additions, roots)
            self.start |= {k: (t, inner(t)) for k, t in additions.items()}

    def fill(self, name: str, value: object) -> Any:
        """Returns what takes the place of a tensor, a number or None."""
        if name in self.tensors:
            new = self.tensors[name]
            if isinstance(value, NUMBERS) and not isinstance(value_in(new), jax.Array):
                new = type(value)(inner(new).item())  # known: a number as it was
        elif id(value) in self.weights:
            new = self.weights[id(value)]
        elif isinstance(value, torch.Tensor) and _plain(value):
            new = self.lifted.setdefault(id(value), lift(value.detach()))
        else:
            new = value
        self.start[name] = new, inner(new) if isinstance(new, torch.Tensor) else None
        return new

    def visit(self, name: str, holder: Any, loose: bool) -> None:
        """Keeps the content of a list or dict; keys that are weights become the trace's."""
        self.holders.append((holder, content := snapshot(holder), loose))
        if isinstance(holder, dict) and not TENSORS.isdisjoint(map(type, holder)):
            by_weight = {self.weights.get(id(k), k): x for k, x in holder.items()}
            holder.clear()
            holder.update(by_weight)
        if not loose:
            self.uncarried.watch(name, holder, content)

    def _grow(self, additions: dict[str, torch.Tensor], roots: Sequence[Root]) -> None:
        """Puts tensors where nothing was, below the root of the longest name that leads there."""
        keys = {key_name(t, self.names): t for t in self.weights.values()}
        places: dict[str, tuple[Any, Any]] = {name: (x, key) for name, x, key, _ in roots}
        for module_path, child in named_modules(self.attributes.module).items():
            places.setdefault(module_path, (None, child))
        below: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in additions.items():
            path = name.split(".")
            heads = (".".join(path[:i]) for i in range(len(path), -1, -1))
            head = next(x for x in heads if x in places)
            below.setdefault(head, {})[name[len(head) :].removeprefix(".")] = tensor
        for head, branch in below.items():
            holder, key = places[head]
            value = key if holder is None else holder[key]
            new = branch[""] if "" in branch else grown(value, tree(branch), keys)
            if holder is not None and new is not value:
                holder[key] = new

    def restore(self) -> None:
        """Gives lists, dicts, objects and what is outside of the module their former content."""
        for holder, key, value in self.loose:
            if isinstance(holder, View):
                holder.read()
            current = holder.get(key)
            if current is not value and (self.attributes.steps or _traced(current)):
                holder[key] = value
            elif isinstance(value, NUMBERS):
                self.uncarried.count(str(key), holder, key, value)
        self.uncarried.loose = [holder for holder, _, loose in self.holders if loose]
        for holder, content, loose in self.holders:
            if not loose or any(_traced(x) for _, x in items(holder)):
                restore(holder, content)
            elif isinstance(holder, dict):
                for key, value in content.items():
                    if isinstance(value, NUMBERS) and key in holder:
                        self.uncarried.count(str(key), holder, key, value)

    def written(self) -> trees.Written:
        """``missed`` are those that took the place of something, or came to a list."""
        leaves: dict[str, Any] = {}
        lists: set[str] = set()

        def visit(name: str, holder: object, _: bool) -> None:
            if not isinstance(holder, dict):
                lists.add(name)

        self.attributes.walk(leaves.setdefault, visit, self.names)
        for name in self.tensors:
            if leaves.get(name) is None:
                raise Unsupported(
                    f"forward puts None in the place of the tensor {name}, or takes it away",
                    why="the state's entries are arrays before and after",
                    do="keep a tensor or a number there, such as one that says whether it is set",
                )
        numbers = {k: x for k, x in leaves.items() if not isinstance(x, torch.Tensor)}
        changed = self._written_numbers(numbers)
        tensors = {k: x for k, x in leaves.items() if isinstance(x, torch.Tensor)}
        written = self._written_tensors(tensors, lists)
        return trees.Written(changed | written, changed.missed | written.missed)

    def _written_tensors(self, tensors: dict[str, torch.Tensor], lists: set[str]) -> trees.Written:
        written: dict[str, jax.Array] = {}
        missed = set()
        places: dict[int, str] = {}  # of tensors that were written to
        weights, start = {*map(id, self.weights.values())}, self.start
        for name, value in tensors.items():
            was, inside = start.get(name, (None, None))
            longer = name not in start and name.rpartition(".")[0] in lists
            tensor, weight = inner(value), id(value) in weights and value is was
            # a constant where nothing was is computed anew by every call
            is_state = name in start or longer or isinstance(tensor, JaxTensor)
            if not is_state or weight or _equal(tensor, inside):
                continue
            written[name] = array_of(tensor)
            if value is was and places.setdefault(id(value), name) != name:
                raise Unsupported(
                    f"forward writes to a tensor that is {places[id(value)]} and {name}",
                    why="from then on they would be two arrays of the state",
                    do="keep it in one place, or register it as a buffer",
                )
            module = self.attributes.module
            is_begun = name in start and was is None
            is_begun = is_begun and none_attributes.carried(module, name, tensor)
            is_collected = name not in start and name.startswith(self.outer)
            if inside is not None or longer or is_begun or is_collected:
                missed.add(name)
        return trees.Written(written, missed)

    def _written_numbers(self, numbers: dict[str, Any]) -> trees.Written:
        written: dict[str, jax.Array] = {}
        missed = set()
        for name, value in numbers.items():
            was, inside = self.start.get(name, (None, None))
            if value is None:
                continue
            if inside is not None:
                written[name] = _array(name, value, jax_dtype(value_of(inside)))
                missed.add(name)
            elif name in self.start and value is not was and value != was:
                written[name] = _array(name, value)
                if was is not None:
                    missed.add(name)
        return trees.Written(written, missed)


def _traced(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_traced, value))
    return isinstance(value, torch.Tensor) and private.is_functional(value)


def _array(name: str, number: float, dtype: jnp.dtype | None = None) -> jax.Array:
    try:
        array = jnp.asarray(number, dtype)
        return jax.lax.convert_element_type(array, array.dtype)  # no weak type: one program less
    except OverflowError:
        raise Unsupported(
            f"forward keeps the number {number} in {name}",
            why="JAX's integers have 32 bits",
            do='keep a smaller one, or call jax.config.update("jax_enable_x64", True) first',
        ) from None


def _plain(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor may become a constant of the trace."""
    return tensor.layout is torch.strided and not private.is_functional(tensor)


def _equal(tensor: torch.Tensor, before: torch.Tensor | None) -> bool:
    return before is not None and value_of(tensor) is value_of(before)


def jax_dtype(value: torch.Tensor | jax.Array) -> Any:
    """Returns the JAX dtype of what a state holds: an array, or a tensor whose values are known."""
    return to_jax(value.dtype) if isinstance(value, torch.Tensor) else value.dtype
