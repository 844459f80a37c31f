"""TensorLists (and TensorArrays, which are made of them) as a buffer and a length.

TensorFlow's lists may grow, and the shape of their elements may be unknown. Here the buffer has a
fixed capacity: a loop that writes to a list makes room first (``branches.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from anyjax.dtypes import shape_of
from anyjax.errors import Unsupported
from anyjax.numerics.wide_integers import Checks
from anyjax.stablehlo.core.static_values import as_jax, is_known, known, sizes
from anyjax.tensorflow.core import dtypes
from anyjax.tensorflow.core.running import OF_STRUCTURES, handles

FEW = 16


@dataclass(frozen=True)
class TensorList:
    """A list: ``buffer`` is (capacity, *element), None until the shape of an element is known.

    ``length`` is an int where it is known, else an array; ``element`` the shape that the list was
    made with, with None for unknown sizes or an unknown rank.
    """

    buffer: Any
    length: Any
    element: tuple | None
    dtype: Any
    grown: int = 0  # elements added since a loop began to trace it, at most
    spare: int = 0  # elements that fit for sure behind a length that is not known
    varies: bool = False  # whether branches added different numbers of them
    same: Any = None  # the known value that every element was pushed with; () if they differ

    @property
    def capacity(self) -> int:
        """The number of elements that there is room for."""
        return 0 if self.buffer is None else self.buffer.shape[0]

    @property
    def room_for(self) -> int:
        """The number of elements that there is room for, or will be where it has no buffer yet."""
        return max(self.capacity, _fixed_length(self) or 0)

    def like(self, shape: tuple) -> TensorList:
        """Returns the list with a buffer for elements of this shape, if it has none yet."""
        if self.buffer is not None:
            return self
        count = _count(self.length, "the number of elements of a TensorArray")
        return replace(self, buffer=jnp.zeros((count, *shape), self.dtype))

    def room(self, capacity: int, shape: tuple) -> TensorList:
        buffer = jnp.zeros((0, *shape), self.dtype) if self.buffer is None else self.buffer
        missing = capacity - buffer.shape[0]
        if missing <= 0:
            return replace(self, buffer=buffer)
        pad = [(0, missing)] + [(0, 0)] * (buffer.ndim - 1)
        return replace(self, buffer=jnp.pad(buffer, pad))

    def longer(self, count: int, shape: tuple) -> TensorList:
        """Returns the list with ``count`` more elements, of which the last may be behind its room
        where its length is not known.
        """
        grown = self.grown + count
        length, fixed = self.length + count, isinstance(self.length, int)
        short = max(count - self.spare, 0)
        items = self.room(length if fixed else self.capacity + short, shape)
        spare = 0 if fixed else self.spare + short - count
        return replace(items, length=length, grown=grown, spare=spare)

    def shape(self) -> TensorList:
        """Returns the list without its values: the shape of its buffer, its length if known."""
        buffer = None if self.buffer is None else shape_of(self.buffer)
        return replace(self, buffer=buffer, length=_fixed_length(self))


def _flatten(x: TensorList):
    moving = not isinstance(x.length, int)
    children = (x.buffer, x.length) if moving else (x.buffer,)
    return children, (None if moving else x.length, x.element, np.dtype(x.dtype), x.same)


def _unflatten(aux, children):
    length, element, dtype, same = aux
    length = children[1] if length is None else length
    return TensorList(children[0], length, element, dtype, same=same)


jax.tree_util.register_pytree_node(TensorList, _flatten, _unflatten)


def _fixed_length(items: TensorList) -> int | None:
    return items.length if isinstance(items.length, int) else None


def common(lists: Sequence[TensorList]) -> TensorList:
    """Returns what lists of several branches become, as a shape: one buffer with room for the
    longest.

    Raises:
      Unsupported: their elements have different shapes.
    """
    first = lists[0]
    buffers = [x.buffer for x in lists if x.buffer is not None]
    if len(shapes := {x.shape[1:] for x in buffers}) > 1:
        raise Unsupported(
            "branches that fill a TensorArray with elements of different shapes",
            why=f"its elements share one buffer, and are {' and '.join(map(str, sorted(shapes)))}",
            do="pad them to the same shape",
        )
    capacity = max(x.room_for for x in lists)
    buffer = jax.ShapeDtypeStruct((capacity, *shapes.pop()), first.dtype) if buffers else None
    lengths = {_fixed_length(x) for x in lists}
    return TensorList(
        buffer,
        first.length if len(lengths) == 1 else None,
        first.element if len({x.element for x in lists}) == 1 else None,
        first.dtype,
        grown=max(x.grown for x in lists),
        spare=min(x.spare for x in lists),
        same=first.same if len({x.same for x in lists}) == 1 else (),
        varies=len({x.grown for x in lists}) > 1 or any(x.varies for x in lists),
    )


def widened(items: TensorList, shape: TensorList) -> TensorList:
    """Returns a list as ``common`` says."""
    if shape.buffer is not None:
        items = items.room(shape.buffer.shape[0], shape.buffer.shape[1:])
    length = items.length if shape.length is not None else jnp.asarray(items.length, jnp.int32)
    return replace(shape, buffer=items.buffer, length=length)


def _element_shape(value: Any) -> tuple | None:
    """Reads a shape from a tensor: -1 for an unknown size, a scalar -1 for an unknown rank."""
    if not is_known(value) or not np.ndim(value):
        return None
    return tuple(None if isinstance(n, (int, np.integer)) and n < 0 else n for n in sizes(value))


def _fixed(shape: tuple | None) -> TypeGuard[tuple]:
    return shape is not None and None not in shape


def _element_dtype(node):
    return dtypes.to_jax(node.proto.attr["element_dtype"].type)


def _count(value: ArrayLike, what: str) -> int:
    return int(known(value, what))


@handles("EmptyTensorList")
def empty(run, node, inputs):
    return (TensorList(None, 0, _element_shape(inputs[0]), _element_dtype(node)),)


@handles("TensorListReserve")
def reserve(run, node, inputs):
    element, count = _element_shape(inputs[0]), _count(inputs[1], "the length of a TensorArray")
    items = TensorList(None, count, element, _element_dtype(node))
    return (items.like(element) if _fixed(element) else items,)


@handles("TensorListFromTensor")
def from_tensor(run, node, inputs):
    values = as_jax(inputs[0])
    return (TensorList(jnp.asarray(values), values.shape[0], values.shape[1:], values.dtype),)


@handles("TensorListStack")
def stack(run, node, inputs):
    return (stacked(inputs[0], _element_shape(inputs[1])),)


def stacked(items: TensorList, element: tuple | None):
    """Returns all elements as one array; their number has to be known."""
    if items.buffer is None:
        shape = items.element if _fixed(items.element) else element
        if not _fixed(shape):
            raise Unsupported(
                "a TensorArray is read whose elements have no known shape",
                why="nothing was written to it",
                do="give it element_shape=",
            )
        return items.like(shape).buffer
    if not isinstance(items.length, int):
        length = _count(items.length, "the number of elements of a TensorArray")
        return items.buffer[:length]
    return items.buffer[: items.length] if items.length < items.capacity else items.buffer


@handles("TensorListGetItem")
def get_item(run, node, inputs):
    return (item(inputs[0], inputs[1], _element_shape(inputs[2])),)


def item(items: TensorList, index: Any, element: Any) -> Any:
    """Returns one element."""
    if items.buffer is None:
        shape = items.element if _fixed(items.element) else element
        return jnp.zeros(shape, items.dtype)
    if is_known(index):
        return items.buffer[int(index)]
    return jax.lax.dynamic_index_in_dim(items.buffer, index, 0, keepdims=False)


@handles("TensorListSetItem")
def set_item(run, node, inputs):
    items, index, value = inputs[:3]
    grows = node.attr("resize_if_index_out_of_bounds")
    return (with_item(items, index, value, grows, run.checks),)


def with_item(items: TensorList, index, value, grows: bool, checks: Checks) -> TensorList:
    """Returns the list with one element set; beyond the end it grows if ``grows``."""
    value = jnp.asarray(as_jax(value))
    items = items.like(value.shape)
    if grows and is_known(index) and isinstance(items.length, int):
        items = items.longer(max(int(index) + 1 - items.length, 0), value.shape)
    elif grows:
        end = index + 1
        if is_known(index):
            items = items.room(int(end), value.shape)
        longest = jnp.maximum(jnp.asarray(items.length, jnp.int32), end)
        has_room = is_known(index) or items.spare > 0
        items = replace(items.longer(1, value.shape), length=longest)
        items = items if has_room else unless(items, end <= items.capacity, checks)
    at = int(index) if is_known(index) else index
    return replace(items, buffer=items.buffer.at[at].set(value), same=())


def unless(items: TensorList, fits: jax.Array, checks: Checks) -> TensorList:
    """Returns the list with NaN for its numbers unless all fit; of integers, the output has it."""
    if not jnp.issubdtype(items.dtype, jnp.inexact):
        checks.require(fits, _no_room)
        return items
    return replace(items, buffer=jnp.where(fits, items.buffer, jnp.nan).astype(items.dtype))


def _no_room() -> Unsupported:
    return Unsupported(
        "a TensorArray grows by more than the one element that there is room for",
        why="its buffer has a fixed size, and the place is computed from the inputs",
        do="give the TensorArray a size",
    )


@handles("TensorListLength")
def length(run, node, inputs):
    count = inputs[0].length
    return (np.asarray(count, np.int32) if isinstance(count, int) else count,)


@handles("TensorListElementShape")
def element_shape(run, node, inputs):
    items = inputs[0]
    shape = items.buffer.shape[1:] if items.buffer is not None else items.element
    dtype = dtypes.to_numpy(node.proto.attr["shape_type"].type)
    if shape is None:
        return (np.asarray(-1, dtype),)
    return (np.array([-1 if n is None else n for n in shape], dtype),)


@handles("TensorListPushBack")
def push_back(run, node, inputs):
    items, value = inputs[0], jnp.asarray(as_jax(inputs[1]))
    items = replace(items, same=_same(items, inputs[1]))
    longer = items.longer(1, value.shape)
    return (replace(longer, buffer=longer.buffer.at[items.length].set(value)),)


def _same(items: TensorList, value: Any) -> tuple:
    if not is_known(value) or value.size > FEW or value.dtype.hasobject:
        return ()
    this = (value.dtype.str, value.shape, value.tobytes())
    begins = items.same is None and isinstance(items.length, int) and not items.length
    return this if begins or items.same == this else ()


@handles("TensorListPopBack")
def pop_back(run, node, inputs):
    items = inputs[0]
    last = items.length - 1
    items = replace(items, length=last, grown=items.grown - 1, spare=items.spare + 1)
    if items.same:  # sizes that a gradient asks for
        kind, shape, content = items.same
        value = np.frombuffer(content, kind).reshape(shape)
        return items, value
    if items.buffer is None:
        shape = items.element if _fixed(items.element) else _element_shape(inputs[1])
        return items, jnp.zeros(shape, items.dtype)
    value = jax.lax.dynamic_index_in_dim(items.buffer, last, 0, keepdims=False)
    return items, value


@handles("TensorListResize")
def resize(run, node, inputs):
    items, count = inputs[0], _count(inputs[1], "the new length of a TensorArray")
    if items.buffer is None:
        return (replace(items, length=count),)
    return (replace(items.room(count, items.buffer.shape[1:]), length=count),)


@handles("TensorListGather")
def gather(run, node, inputs):
    items, at = inputs[0], inputs[1]
    return (jnp.take(stacked(items, _element_shape(inputs[2])), as_jax(at), axis=0, mode="clip"),)


@handles("TensorListScatter", "TensorListScatterV2")
def scatter(run, node, inputs):
    values, at = jnp.asarray(as_jax(inputs[0])), inputs[1]
    count = int(inputs[3]) if len(inputs) > 3 and is_known(inputs[3]) else -1
    if count < 0:
        count = int(known(at, "the places of a TensorArray").max(initial=-1)) + 1
    buffer = jnp.zeros((count, *values.shape[1:]), values.dtype).at[as_jax(at)].set(values)
    return (TensorList(buffer, count, values.shape[1:], values.dtype),)


@handles("TensorListScatterIntoExistingList")
def scatter_into(run, node, inputs):
    return (with_items(*inputs),)


def with_items(items: TensorList, values: Any, at: Any) -> TensorList:
    """Returns the list with the elements at these places set."""
    values = jnp.asarray(as_jax(values))
    items = items.like(values.shape[1:])
    if is_known(at) and isinstance(items.length, int):
        count = max(items.length, int(at.max(initial=-1)) + 1)
        items = replace(items.room(count, values.shape[1:]), length=count)
    return replace(items, buffer=items.buffer.at[as_jax(at)].set(values), same=())


@handles("TensorListConcatV2", "TensorListConcat")
def concat(run, node, inputs):
    element = _element_shape(inputs[1]) if len(inputs) > 1 else node.attr("element_shape")
    return concatenated(inputs[0], element)


def concatenated(items: TensorList, element: tuple | None) -> tuple:
    """Concatenates the elements; returns their lengths, too."""
    values = stacked(items, element)
    lengths = np.full(values.shape[0], values.shape[1], np.int64)
    return values.reshape(-1, *values.shape[2:]), lengths


@handles("TensorListSplit")
def split(run, node, inputs):
    return (split_evenly(inputs[0], inputs[2]),)


def split_evenly(values: Any, lengths: Any) -> TensorList:
    """Splits an array along its first axis into elements of the same length."""
    values, lengths = as_jax(values), known(lengths, "the lengths of a split TensorArray")
    if len({*lengths.tolist()}) > 1:
        raise Unsupported(
            "a TensorArray of elements of different lengths",
            why="its elements share one buffer",
            do="pad them to the same length",
        )
    width = int(lengths[0]) if len(lengths) else 0
    buffer = values.reshape(len(lengths), width, *values.shape[1:])
    return TensorList(buffer, len(lengths), buffer.shape[1:], buffer.dtype)


@handles("TensorListConcatLists")
def concat_lists(run, node, inputs):
    first, second = inputs
    buffers = [x.buffer[: x.length] for x in (first, second) if x.buffer is not None]
    count = first.length + second.length
    return (replace(first, buffer=jnp.concatenate(buffers) if buffers else None, length=count),)


def zeros_like(run, node, inputs):
    items = inputs[0]
    buffer = None if items.buffer is None else jnp.zeros_like(items.buffer)
    return (replace(items, buffer=buffer, same=()),)


def add(run, node, inputs):
    """Adds element by element: gradients of a list that is read more than once."""
    buffers = [x.buffer for x in inputs if x.buffer is not None]
    return (replace(inputs[0], buffer=sum(buffers) if buffers else None, same=()),)


OF_STRUCTURES.update(ZerosLike=zeros_like, AddN=add, AddV2=add)
