"""Operators on tensors of which some elements count, each by its rule.

A rule computes for all elements that may count, and leaves out those that do not. What it gives is
compared with what torch's own kernels say of shapes and dtypes; whatever has no rule, and whatever
a rule cannot prove, is refused by name.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from anyjax.errors import DataDependent
from anyjax.torch.aliasing import no_grad
from anyjax.torch.core import diagnostics, private, sizes, strides
from anyjax.torch.core.call import Call as Operator
from anyjax.torch.core.call import call_of
from anyjax.torch.core.lengths import PREFIX, decided
from anyjax.torch.core.private import OpOverload
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.core.tensor import GRADIENT, CountedTensor, JaxTensor, origins_of
from anyjax.torch.lowering.run import Run
from anyjax.torch.sizes import (
    counting,
    elementwise,
    indexing,
    layers,
    normalization,
    ordering,
    reductions,
    selection,
    views,
)
from anyjax.torch.sizes.call import Call, Rule
from anyjax.torch.sizes.counted import Counted, Sizes, Unserved, extent, is_static, traced
from anyjax.typing import PyTree

aten = torch.ops.aten

RULES: Mapping[Any, Rule] = {
    **elementwise.RULES,
    **views.RULES,
    **reductions.RULES,
    **layers.RULES,
    **indexing.RULES,
    **normalization.RULES,
    **ordering.RULES,
}


def has_sizes(call: Operator, args: tuple) -> bool:
    """Returns whether values decide a size among arguments, or that of a result."""
    return sizes.symbolic(args) and any(
        decided(sizes.to_jax(size))
        for i, x in enumerate(args[: len(call.params)])
        if i not in call.numbers and call.params[i].kind != "array"
        for size in (x if isinstance(x, (list, tuple)) else (x,))
        if isinstance(size, torch.SymInt)
    )


def name_of(op: OpOverload) -> Any:
    """Returns the operator without its overload, for those of other libraries its name."""
    return op._schema.name if op.namespace == "torchvision" else op.overloadpacket


def decides(op: OpOverload, args: tuple) -> bool:
    """Returns whether traced values decide a size, or where elements are written."""
    if name_of(op) in selection.RULES:
        return selection.decides(name_of(op), args)
    return any(map(selection.is_traced, args))


def serve(
    run: Run, op: OpOverload, args: tuple, kwargs: dict[str, PyTree], counts: bool = True
) -> Any:
    """Returns the results of an operator; NotImplemented where values decide no size.

    Raises:
      DataDependent: no rule serves it.
    """
    call = call_of(op)
    counts = counts or (call.chooses and decides(op, args))
    if not counts and not has_sizes(call, args):
        return NotImplemented
    try:
        return _served(run, op, args, kwargs)
    except (Unserved, RuntimeError) as reason:
        if not isinstance(reason, Unserved) and PREFIX not in str(reason):
            raise  # else torch's own code, which asks for a number
        error = diagnostics.unserved_size(op, str(reason), *_origin(run, args, kwargs))
        raise error from reason


def _served(run: Run, op: OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    if call_of(op).chooses and decides(op, args):
        return (selection.RULES | counting.RULES)[name_of(op)](run, op, *args, **kwargs)
    rule = RULES.get(op) or RULES.get(name_of(op))
    if rule is None and torch.Tag.pointwise in op.tags:
        rule = elementwise.pointwise
    if rule is None:
        return _taken_apart(run, op, args, kwargs)
    if rule is elementwise.pointwise and run.differentiates:
        args = _of_one_shape(run, args)
    metas = None if op is aten.slice.Tensor else _metas(op, args, kwargs)
    call = Call(op, metas, Sizes(run.lengths))
    arguments = map_tensors(_counted, (_sizes(args), _sizes(kwargs)))
    follows = run.follows()
    with torch.enable_grad():  # what is written under no_grad keeps its gradient, see _cut
        out = run.below(rule, (call, *arguments[0]), arguments[1])
    made_by = (args, kwargs) if op.is_view else None
    out = _results(run, call, out, metas, made_by, op.is_view or not run.differentiates)
    return out if follows else map_tensors(partial(_cut, run, op, args), out)


def _of_one_shape(run: Run, args: tuple) -> tuple:
    """Returns operands of which sizes that have to be numbers are these."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    ranks = range(1, 1 + max((x.dim() for x in tensors), default=0))
    numbers = {}
    for i in ranks:
        sizes_there = [x.shape[-i] for x in tensors if x.dim() >= i]
        numbers[i] = next((n for n in sizes_there if isinstance(n, int) and n != 1), None)

    def unified(x: Any) -> Any:
        if not isinstance(x, CountedTensor):
            return x
        counted, lengths = Counted(x.rows, x.dims), Sizes(run.lengths)
        for i in range(1, 1 + x.dim()):
            number, axis = numbers[i], x.dim() - i
            if number is not None and decided(extent(x.dims[axis])):
                counted = run.below(lengths.assumed, (counted, axis, (number,), True), {})
        is_whole = all(map(is_static, counted.dims))
        return counted.tensor if is_whole else CountedTensor(traced(counted.tensor), counted.dims)

    return tuple(map(unified, args))


def _cut(run: Run, op: OpOverload, args: tuple, tensor: JaxTensor) -> JaxTensor:
    """Returns a result inside of ``no_grad``."""
    is_counted = isinstance(tensor, CountedTensor)
    rows = tensor.rows if is_counted else tensor
    firsts: list[Any] = [getattr(x, "rows", x) for x in args[:1] if isinstance(x, JaxTensor)]
    if not isinstance(rows, JaxTensor):
        return rows
    origins = rows.origins & ~GRADIENT
    if run.writing and firsts:
        origins |= firsts[0].origins & GRADIENT
    layout = (rows.stride(), rows.storage_offset())
    array = no_grad.cut(call_of(op), rows.array, firsts, run.writing)
    new = JaxTensor(array, rows.dtype, origins, layout)
    new.limit, new.unchecked, new.made_by = rows.limit, rows.unchecked, rows.made_by
    if not is_counted:
        return new
    out = CountedTensor(new, tensor.dims, (tensor.stride(), tensor.storage_offset()))
    out.made_by = tensor.made_by
    return out


def _taken_apart(run: Run, op: OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the results by way of other operators."""
    if op is aten.size.default:  # of the interpreter alone, for kernels that know only numbers
        raise Unserved("its kernel in torch takes no open sizes")
    if op.has_kernel_for_dispatch_key(private.COMPOSITE):
        return run.above(op.decompose, args, kwargs)
    function = private.decompositions.get(op)
    if function is None or op in run.decomposing:
        raise Unserved("there is no rule for it")
    run.decomposing.add(op)
    try:
        return run.below(function, args, kwargs)
    finally:
        run.decomposing.discard(op)


def _counted(tensor: torch.Tensor) -> Any:
    return Counted(tensor.rows, tensor.dims) if isinstance(tensor, CountedTensor) else tensor


def _sizes(tree: PyTree) -> Any:
    """Returns arguments with JAX's sizes in the place of torch's."""
    if isinstance(tree, torch.SymInt):
        return sizes.to_jax(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)([*map(_sizes, tree)])
    return {k: _sizes(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


def _metas(op: OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the results without values, as torch's own kernels see them."""
    args, kwargs = map_tensors(strides.to_meta, (args, kwargs))
    try:
        with sizes.generally():
            if any(x.name == "device" for x in op._schema.arguments):
                kwargs["device"] = torch.device("meta")
            return op(*args, **kwargs)
    except DataDependent:
        raise
    except (RuntimeError, IndexError, ValueError, AssertionError) as error:
        raise Unserved(str(error).strip().splitlines()[0]) from error


def _results(
    run: Run, call: Call, out: PyTree, metas: PyTree, made_by: tuple | None, is_view: bool
) -> Any:
    """Returns tensors of the sizes that torch says; what does not count is 0, so that neither a
    value nor a gradient of it reaches anything.
    """
    if isinstance(metas, (tuple, list)):
        together = [
            _results(run, call, x, y, made_by, is_view) for x, y in zip(out, metas, strict=True)
        ]
        return together if isinstance(metas, list) else tuple(together)
    if metas is None and made_by and isinstance(out, Counted):  # a range has a size of its own
        return _ranged(call, out, made_by)
    if not isinstance(metas, torch.Tensor):
        return out
    tensor, dims = (out.tensor, out.dims) if isinstance(out, Counted) else (out, None)
    dims = tuple((sizes.to_jax(n),) for n in tensor.shape) if dims is None else dims
    sized = [*map(extent, call.sizes.dims(metas))]
    if [*map(extent, dims)] != sized or tuple(tensor.shape) != call.sizes.shape(dims):
        raise Unserved(f"a result of shape {[*map(extent, dims)]}, which torch has as {sized}")
    if tensor.dtype != metas.dtype:
        raise Unserved(f"a result of {tensor.dtype}, which torch has as {metas.dtype}")
    if all(map(is_static, dims)):
        return tensor
    if not is_view:
        tensor = run.below(call.sizes.fill, (Counted(tensor, dims),), {})
    result = CountedTensor(traced(tensor), dims, (metas.stride(), metas.storage_offset()))
    result.made_by = made_by and (call.op, *made_by)
    return result


def _ranged(call: Call, out: Counted, made_by: tuple) -> torch.Tensor:
    """Returns a range of a tensor, as it lies in the memory of that."""
    if all(map(is_static, out.dims)):
        return out.tensor
    named = call.named(*made_by)
    base, axis, start = named["self"], out.axis(named["dim"]), named["start"]
    strides = [*base.stride()]
    first = start if isinstance(start, int) and start > 0 else 0
    offset = base.storage_offset() + first * strides[axis]
    strides[axis] = strides[axis] * named["step"]
    result = CountedTensor(traced(out.tensor), out.dims, (strides, offset))
    result.made_by = (call.op, *made_by)
    return result


def _origin(run: Run, args: tuple, kwargs: dict[str, PyTree]) -> tuple[str, tuple[str, ...]]:
    """Returns the code that sizes come from, and the names of the inputs."""
    leaves = flatten((_sizes(args), _sizes(kwargs)))[0]
    all_sizes = [x for x in leaves if sizes.symbolic(x)]
    for x in leaves:
        if isinstance(x, CountedTensor):
            all_sizes += [size for dim in x.dims for size in dim]
    counted = [*filter(decided, all_sizes)]
    if not counted:  # the operator's own operands choose
        return "it", run.named(origins_of(leaves))
    origins = functools.reduce(operator.or_, map(run.lengths.origins, counted), 0)
    return ", ".join(dict.fromkeys(map(run.lengths.places, counted))), run.named(origins)
