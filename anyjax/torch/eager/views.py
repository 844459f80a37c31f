"""Views: what torch's own operator makes of shapes and strides, how a view is computed from its
owner, and how what is written to it comes there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core import diagnostics, private, strides
from anyjax.torch.core.call import Call, call_of
from anyjax.torch.core.dtypes import TO_TORCH
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.eager.tensor import EagerTensor, Spec, Step, in_memory, spec_of
from anyjax.typing import PyTree

aten = torch.ops.aten

SAME = {aten.alias.default, aten.detach.default, aten.lift_fresh.default, aten.lift.default}
SPLITS = {aten.split.Tensor, aten.split_with_sizes.default}
LISTS = {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
# Views of other numbers than their base has: what gives the base back.
INVERSES = {
    aten._conj.default: jnp.conj,
    aten._neg_view.default: jnp.negative,
    aten.view_as_real.default: lambda x: jax.lax.complex(x[..., 0], x[..., 1]),
    aten.view_as_complex.default: lambda x: jnp.stack([x.real, x.imag], -1),
}


def view(call: Call, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the views that an operator makes of its first argument."""
    base: EagerTensor = args[0]
    if call.op is aten.detach.default and isinstance(base.memory.array, jax.core.Tracer):
        return cut(base)
    if call.op in SAME:
        return in_memory(base.spec, base.memory, type(base))
    specs = specs_of(call.op, frozen(args[1:]), frozen(kwargs), base.spec)
    views = [in_memory(spec, base.memory, type(base)) for spec in specs]
    return views if call.op._schema.returns[0].type.kind() == "ListType" else views[0]


def cut(base: EagerTensor) -> EagerTensor:
    """Returns the same memory, from which no gradient of JAX's comes back."""
    spec, steps = base.spec, (*base.spec.steps, Step("detach", (), (), None))
    parts = spec.shape, spec.dtype, spec.stride, spec.offset, spec.owner or spec
    return in_memory(spec_of(*parts, steps, spec.starts), base.memory, type(base))


def frozen(value: PyTree) -> Any:
    """Returns an argument without tensors as a key."""
    if isinstance(value, (list, tuple)):
        return tuple(map(frozen, value))
    return tuple((k, frozen(v)) for k, v in value.items()) if isinstance(value, dict) else value


@lru_cache(1 << 14)
def specs_of(op: private.OpOverload, args: tuple, kwargs: tuple, base: Spec) -> list[Spec]:
    """Returns what torch makes of a tensor of this spec."""
    if op is aten.view.dtype:
        strides.check_same_bits(base.dtype, args[0])
    memory = strides.of_memory(base.shape, base.stride, base.offset, base.dtype)
    out = op(memory, *args, **dict(kwargs))
    several = isinstance(out, (list, tuple))
    owner = base.owner or base
    if op is aten.as_strided.default:
        if any(step.op in (*INVERSES, aten.view.dtype) for step in base.steps):
            raise Unsupported(
                "as_strided of a view of other numbers than its base has",
                where=diagnostics.where(),
                why="its strides count in other elements",
                do="clone the view first",
            )
        geometry = (tuple(out.shape), out.stride(), out.storage_offset())
        args, kwargs, base = geometry, (), replace(base, starts=())
    outs = list(out) if several else [out]
    specs = []
    for place, x in enumerate(outs):
        step, start = _lifted(op, args, kwargs, place, base.shape, outs)
        steps, layout = base.steps + step, (x.stride(), x.storage_offset())
        if op is aten.as_strided.default:
            steps = step
        specs.append(spec_of(x.shape, x.dtype, *layout, owner, steps, base.starts + start))
    return specs


def _lifted(
    op: private.OpOverload, args: tuple, kwargs: tuple, place: int, shape: torch.Size, outs: list
) -> tuple[tuple[Step], tuple[int, ...]]:
    """Returns a step, of selections and slices without where they begin, and that."""
    begins = op in (aten.select.int, aten.unbind.int, aten.slice.Tensor, *SPLITS) and not kwargs
    is_dense = op is not aten.slice.Tensor or len(args) < 4 or args[3] == 1
    if not begins or not is_dense:
        return (Step(op, args, kwargs, place if len(outs) > 1 or op in LISTS else None),), ()
    dims = args[1:2] if op in SPLITS else args[:1]
    dim = dims[0] % len(shape) if dims else 0
    if op is aten.select.int:
        return (Step("select", (dim,), (), None),), (args[1] % shape[dim],)
    if op is aten.unbind.int:
        return (Step("select", (dim,), (), None),), (place,)
    start = sum(x.shape[dim] for x in outs[:place])
    if op is aten.slice.Tensor:
        start = (args[1] if len(args) > 1 else 0) or 0
        start = min(max(start + shape[dim] if start < 0 else start, 0), shape[dim])
    return (Step("slice", (dim, outs[place].shape[dim]), (), None),), (start,)


def stand_in(spec: Spec, array: jax.Array) -> JaxTensor:
    """Returns a tensor for lowerings that look at dtype and strides."""
    return JaxTensor(array, spec.dtype, 0, (spec.stride, 0))


def _apply(step: Step, dtype: torch.dtype, base: PyTree, starts: Iterator[PyTree]) -> jax.Array:
    if step.op == "detach":
        return lax.stop_gradient(base.array if isinstance(base, JaxTensor) else base)
    if step.op in BEGINS:
        array = base.array if isinstance(base, JaxTensor) else base
        return BEGINS[step.op](array, next(starts), *step.args)
    call = call_of(step.op)
    tensor = base if isinstance(base, JaxTensor) else JaxTensor(base, dtype)
    if step.op is aten.as_strided.default:
        tensor = strides.in_memory_order(tensor)
    values, _ = call.bind((tensor, *map(_list, step.args)), dict(step.kwargs))
    assert call.row is not None
    out = call.row.lowering(*values)
    return out if step.place is None else out[step.place]


BEGINS: dict[Any, Any] = {
    "select": lambda x, i, dim: lax.dynamic_index_in_dim(x, i, dim, keepdims=False),
    "slice": lambda x, i, dim, length: lax.dynamic_slice_in_dim(x, i, length, dim),
}
PUTS: dict[Any, Any] = {
    "select": lambda x, new, i, dim: lax.dynamic_update_index_in_dim(x, new, i, dim),
    "slice": lambda x, new, i, dim, _: lax.dynamic_update_slice_in_dim(x, new, i, dim),
}


def _list(value: PyTree) -> Any:
    return list(value) if isinstance(value, tuple) else value


def computed(spec: Spec, owner: jax.Array, starts: Sequence[PyTree]) -> jax.Array:
    """Returns the array of a view from that of its owner."""
    return _chain(spec, owner, starts)[-1]


def _chain(spec: Spec, owner: jax.Array, starts: Sequence[PyTree]) -> list[jax.Array]:
    assert spec.owner is not None
    arrays: list[Any] = [owner]
    dtype, begins = spec.owner.dtype, iter(starts)
    for i, step in enumerate(spec.steps):
        base = stand_in(spec.owner, owner) if not i else arrays[-1]
        arrays.append(_apply(step, dtype, base, begins))
        dtype = _dtype_after(step, dtype)
    return arrays


def _dtype_after(step: Step, dtype: torch.dtype) -> torch.dtype:
    if step.op is aten.view.dtype:
        return step.args[0]
    if step.op is aten.view_as_real.default:
        return dtype.to_real()
    return dtype.to_complex() if step.op is aten.view_as_complex.default else dtype


@lru_cache(1 << 12)
def _reader(template: Spec) -> Any:
    return jax.jit(partial(computed, template))


@lru_cache(1 << 12)
def _writer(template: Spec) -> Any:
    return jax.jit(partial(_written, template))


def read(tensor: EagerTensor) -> jax.Array:
    """Returns the array of a view as it is now."""
    spec = tensor.spec
    return _reader(spec.template)(tensor.memory.array, spec.starts)


def write(tensor: EagerTensor, array: jax.Array) -> None:
    """Stores an array in a tensor; through a view, in what it is a view of.

    Raises:
      Unsupported: elements of the view share their memory.
    """
    memory, spec = tensor.memory, tensor.spec
    if memory.array.dtype not in TO_TORCH:  # such as int4, which reads as int8
        array = array.astype(memory.array.dtype)
    if spec.owner is not None:
        array = _writer(spec.template)(memory.array, array, spec.starts)
    memory.array = array


def _written(spec: Spec, owner: jax.Array, array: jax.Array, starts: Sequence[PyTree]) -> jax.Array:
    """Returns the owner's array after a write to the view."""
    assert spec.owner is not None
    bases, begins = _chain(spec, owner, starts)[:-1], [*starts]
    for i, step, base in reversed([*zip(range(len(bases)), spec.steps, bases)]):
        if step.op in PUTS:
            array = PUTS[step.op](base, array, begins.pop(), *step.args)
        else:
            array = _put(step, base, array, spec.owner.stride if i == 0 else ())
    return array


def _put(step: Step, base: jax.Array, array: jax.Array, stride: tuple) -> jax.Array:
    """Returns a view's base after a write to all of the view."""
    if step.op == "detach":
        return array
    if step.op in INVERSES:
        return INVERSES[step.op](array)
    if step.op is aten.view.dtype:
        return jax.lax.bitcast_convert_type(
            array.reshape(*base.shape, -1)
            if array.size > base.size
            else array.reshape(*array.shape[:-1], base.shape[-1], -1)
            if array.size < base.size
            else array,
            base.dtype,
        )
    if array.size == base.size and step.op in (aten.view.default, aten.unsqueeze.default):
        return array.reshape(base.shape)
    places = _places(step, base.shape, stride)
    return base.reshape(-1).at[places].set(array, unique_indices=True).reshape(base.shape)


@lru_cache(1 << 10)
def _places(step: Step, shape: tuple[int, ...], stride: tuple = ()) -> np.ndarray:
    """Returns where in its base each element of a view lies, by torch's own view of numbers."""
    numbers = torch.arange(int(np.prod(shape)), dtype=torch.int32).reshape(shape)
    op: Any = step.op
    if op is aten.as_strided.default:
        order = sorted(range(len(shape)), key=lambda i: -stride[i])  # as in_memory_order has it
        numbers = numbers.permute(order).contiguous()
    if op in (aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default):
        op, step = aten.reshape.default, Step(step.op, step.args[:1], (), None)
    out = op(numbers, *step.args, **dict(step.kwargs))
    places = (out if step.place is None else out[step.place]).numpy()
    if np.unique(places).size < places.size:
        raise Unsupported(
            f"writing to a view whose elements share memory ({step.op})",
            where=diagnostics.where(),
            why="which of the values would stay there is not defined",
            do="clone the view before writing to it",
        )
    return places


EagerTensor.cut = cut
EagerTensor.read_view, EagerTensor.write_to = staticmethod(read), staticmethod(write)
