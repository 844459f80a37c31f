"""State besides parameters and buffers: tensors and numbers in plain attributes, also inside of
lists, tuples, dicts and objects of classes that are not a library's own.

    self.hidden = None                            # state["hidden.0"], state["hidden.1"]
    out, self.hidden = self.lstm(x, self.hidden)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch

from anyjax import trees
from anyjax.errors import Unsupported
from anyjax.torch.core import private
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.lifting import array_of, inner, lift, value_in
from anyjax.torch.core.tensor import JaxTensor, value_of
from anyjax.torch.state import none_attributes
from anyjax.torch.state.attribute_tree import NUMBERS, Holder, Walk, grown, items, restore, tree
from anyjax.torch.state.closures import Function
from anyjax.torch.state.uncarried import Uncarried

OWN = {*vars(torch.nn.Module())}  # what torch itself keeps in every module


class AttributeState:
    """The attributes of a module that are state, by name: the path and the keys that lead there,
    with dots. The ``places`` (id of the holder, key) are those of parameters and buffers, which do
    not count. Numbers around a function are state where it ``steps`` an optimizer.
    """

    def __init__(self, module: torch.nn.Module, places: set[tuple[int, str]], steps: bool = False):
        self.module, self.places, self.steps = module, places, steps

    def leaves(self) -> dict[str, Any]:
        """Everything as it is now."""
        return self._read()[0]

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
        holders: list[tuple[Any, Any, bool]] = []
        roots = [(holder, key, holder[key]) for _, holder, key, loose in self._roots() if loose]
        lifted: dict[int, torch.Tensor] = {}
        start: dict[str, Any] = {}

        def fill(name: str, value: Any) -> Any:
            if name in tensors:
                new = tensors[name]
                if isinstance(value, NUMBERS) and not isinstance(value_in(new), jax.Array):
                    new = type(value)(inner(new).item())  # known: a number as it was
            elif id(value) in weights:
                new = weights[id(value)]
            elif _plain(value):
                new = lifted.setdefault(id(value), lift(value.detach()))
            else:
                new = value
            start[name] = new, inner(new) if isinstance(new, torch.Tensor) else None
            return new

        def visit(name: str, holder: Holder, loose: bool) -> None:
            holders.append((holder, content := holder.copy(), loose))
            if not loose:
                uncarried.watch(name, holder, content)

        try:
            self._map(fill, visit)
            additions = {k: t for k, t in tensors.items() if k not in start}
            grown(self.module, tree(additions))
            start |= {k: (t, inner(t)) for k, t in additions.items()}
            yield lambda: self._written(start, {*map(id, weights.values())}, {*tensors})
        finally:
            for holder, key, value in roots:
                if holder[key] is not value and (self.steps or _traced(holder[key])):
                    holder[key] = value
            for holder, content, loose in holders:
                if not loose or any(_traced(x) for _, x in items(holder)):
                    restore(holder, content)

    def _written(self, start, weights: set[int], given: set[str]) -> trees.Written:
        """``missed`` are those that took the place of something, or came to a list."""
        written: dict[str, jax.Array] = {}
        missed = set()
        places: dict[int, str] = {}  # of tensors that were written to
        leaves, lists = self._read()
        for name, value in leaves.items():
            was, inside = start.get(name, (None, None))
            longer = name not in start and name.rpartition(".")[0] in lists
            if isinstance(value, torch.Tensor):
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
                begun = (
                    name in start
                    and was is None
                    and none_attributes.carried(self.module, name, tensor)
                )
                if inside is not None or longer or begun:
                    missed.add(name)
            elif value is None:
                continue
            elif inside is not None:
                written[name] = _array(name, value, jax_dtype(value_of(inside)))
                missed.add(name)
            elif name in start and value is not was and value != was:
                written[name] = _array(name, value)
                if was is not None:
                    missed.add(name)
        for name in given:
            if leaves.get(name) is None:
                raise Unsupported(
                    f"forward puts None in the place of the tensor {name}, or takes it away",
                    why="the state's entries are arrays before and after",
                    do="keep a tensor or a number there, such as one that says whether it is set",
                )
        return trees.Written(written, missed)

    def _read(self) -> tuple[dict[str, Any], set[str]]:
        """(everything as it is now, the names of lists)."""
        leaves: dict[str, Any] = {}
        lists: set[str] = set()

        def visit(name: str, holder: Holder, _: bool) -> None:
            if not isinstance(holder, dict):
                lists.add(name)

        self._map(lambda name, value: leaves.setdefault(name, value), visit)
        return leaves, lists

    def _roots(self) -> Iterator[tuple[str, Any, Any, bool]]:
        """(name, what holds it, key, whether a function refers to it) of all that is kept."""
        for path, child in self.module.named_modules():
            inside = f"{path}." if path else ""
            if isinstance(child, Function):
                yield from ((inside + k, *place, True) for k, place in child.captured.items())
                continue
            holder = vars(child)
            yield from ((inside + k, holder, k, False) for k in holder if k not in OWN)
            for held in (child._parameters, child._buffers):
                for key in held.keys():  # noqa: SIM118  TorchScript's have no __iter__
                    if (id(held), key) not in self.places:
                        yield inside + key, held, key, False

    def _map(self, leaf: Callable[[str, Any], Any], visit: Callable[[str, Any, bool], None]):
        walk = Walk(leaf, visit, {id(m) for m in self.module.modules()})
        for name, holder, key, loose in [*self._roots()]:
            value = holder[key]
            loose = loose and not self.steps
            if isinstance(value, NUMBERS):  # most of them
                new = value if loose else leaf(name, value)
            else:
                new = walk(name, value, loose)
            if new is not value:
                holder[key] = new


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


def _plain(value: object) -> bool:
    """Returns whether a value is a tensor that may become a constant of the trace."""
    is_strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return is_strided and not private.is_functional(value)


def _equal(tensor: torch.Tensor, before: torch.Tensor | None) -> bool:
    return before is not None and value_of(tensor) is value_of(before)


def jax_dtype(value: torch.Tensor | jax.Array) -> Any:
    """Returns the JAX dtype of what a state holds: an array, or a tensor whose values are known."""
    return to_jax(value.dtype) if isinstance(value, torch.Tensor) else value.dtype
