"""In-place operators and ``out=``: their functional form computes, then the result is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from anyjax.errors import Unsupported
from anyjax.table import REQUIRED
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.call import Call
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.eager.programs import compute
from anyjax.torch.eager.tensor import EagerTensor, in_memory, of_layout, tensor_of
from anyjax.torch.eager.views import write
from anyjax.typing import PyTree

aten = torch.ops.aten
PLACES = {aten.index_put_.default, aten._index_put_impl_.default, aten.index_copy_.default}


class Form:
    """How an operator that writes is computed.

    Attributes:
      op: what computes the values, None if there is none.
      outs: names of arguments that only take a result.
      written: names of the arguments that are written to.
      defaults: arguments that ``op`` has no default of.
    """

    def __init__(self, call: Call):
        arguments = call.op._schema.arguments
        self.outs = {a.name for a in arguments if a.is_out}
        self.op = functional(call.op, tuple(a for a in arguments if not a.is_out))
        self.written = call.signature.writes
        self.in_place = not self.outs and self.written == (arguments[0].name,)
        self.names = [p.name for p in call.params]
        self.defaults: dict[str, Any] = {}
        if self.op is not None:
            required = [a.name for a in self.op._schema.arguments if not a.has_default_value()]
            defaults = {p.name: p.default for p in call.params if p.default is not REQUIRED}
            self.defaults = {name: defaults[name] for name in required if name in defaults}
        self.returns = len(call.op._schema.returns)


form_of = lru_cache(None)(Form)


def check_targets(call: Call, args: tuple, kwargs: dict[str, PyTree]) -> None:
    """Raises Unsupported where a result of JAX would be written to a tensor of torch."""
    form = form_of(call)
    bound = {form.names[0]: args[0]} if form.in_place else dict(zip(form.names, args)) | kwargs
    for name in form.written:
        if any(not isinstance(x, EagerTensor) for x in _listed([bound[name]])):
            raise Unsupported(
                f"{call.op} writes a result of JAX to a tensor of torch",
                where=diagnostics.where(),
                why="they are on different devices",
                do="give a tensor on JAX, or copy the result: target.copy_(result)",
            )


def _listed(arguments: Iterable[PyTree]) -> list[Any]:
    lists = (x if isinstance(x, (list, tuple)) else [x] for x in arguments)
    return [x for part in lists for x in part]


def run(call: Call, args: tuple, kwargs: dict[str, PyTree], run: Callable[..., PyTree]) -> Any:
    """Runs an operator that writes to its arguments; returns those that it returns."""
    op, form = call.op, form_of(call)
    if form.op is None and op in private.decompositions:
        out = compute(call, args, kwargs)
        return out if form.returns else None
    if form.op is None:
        raise Unsupported(
            f"{op} on a tensor on JAX",
            where=diagnostics.where(),
            why="it changes more of a tensor than its values",
            do="use its form that returns a new tensor",
        )
    if form.in_place:
        targets = _listed([args[0]])
    else:
        bound = dict(zip(form.names, args)) | kwargs
        targets = _listed(bound[name] for name in form.written)
    if form.outs or form.defaults:
        kwargs = {k: v for k, v in kwargs.items() if k not in form.outs}
        bound = dict(zip(form.names, args)) | kwargs
        kwargs |= {k: v for k, v in form.defaults.items() if k not in bound}
    if call.op in PLACES and _is_selection(args):
        return _assign(call.op, args, run)
    out = run(form.op, args, kwargs)
    if form.op.is_view:  # such as squeeze_
        targets[0].become(out)
        return targets[0]
    results = _listed([out])
    first = len(results) - len(targets)
    for target, result in zip(targets, results[first:]):
        _store(op, target, result, bool(form.outs))
    returned = [*results[:first], *targets][: form.returns]
    return returned[0] if form.returns == 1 else tuple(returned) if returned else None


def _is_selection(args: tuple) -> bool:
    """Returns whether a tensor is selected from another, and places of it have numbers."""
    steps = args[0].spec.steps
    places = [x for x in _listed(args[1:3]) if isinstance(x, EagerTensor)]
    masks = any(x.dtype in (torch.bool, torch.uint8) for x in places)
    return bool(steps) and all(step.op == "select" for step in steps) and not masks


def _assign(op: private.OpOverload, args: tuple, run: Callable[..., PyTree]) -> EagerTensor:
    """Assigns to places of a tensor that is selected from another one, in the memory of that."""
    memory, assignment = args[0].memory, in_owner(op, *args)
    owner = memory.array
    run(aten.index_put_.default, assignment, {})
    memory.array = _divided_like(owner, memory.array, assignment[1])
    return args[0]


def in_owner(op: private.OpOverload, target: EagerTensor, *args: Any) -> tuple:
    """Returns the arguments of ``index_put_`` that assign to the same places of the tensor that the
    target is selected from. XLA does that in place; a selection that it assigns to is a copy.
    """
    if op is aten.index_copy_.default:
        args = [*[None] * (args[0] % target.dim()), args[1]], args[2]
    places, values, *further = args
    places = [*places, *[None] * (target.dim() - len(places))]
    indices, spec = [*places], target.spec
    for step, number in reversed([*zip(spec.steps, spec.starts)]):
        place = tensor_of(of_layout((), torch.int32), jnp.asarray(number, "int32"))
        indices.insert(step.args[0], place)
    start, end = _block(places), _block(indices)
    if start != end:
        count = max(x.dim() for x in places if x is not None)
        rank = count + sum(x is None for x in places)
        values = values[(None,) * (rank - values.dim())]
        values = values.movedim([*range(start, start + count)], [*range(end, end + count)])
    assert spec.owner is not None
    return in_memory(spec.owner, target.memory, type(target)), indices, values, *further


def _divided_like(owner: jax.Array, array: jax.Array, places: list) -> jax.Array:
    """Returns an array that XLA divides over a mesh as the one in whose place it comes: what is
    assigned may be divided otherwise, and an array that is not as before is not in its place.

    All of an array is written to another one, which XLA leaves out, but not before it has decided
    who has which part: it begins at a number that only the program knows.
    """
    numbers = [x.array for x in places if x is not None and isinstance(x.array, jax.core.Tracer)]
    if not numbers or not isinstance(array, jax.core.Tracer):
        return array
    start = numbers[0].reshape(-1)[:1].sum().astype("int32")
    return lax.dynamic_update_slice(owner, array, [start, *[0] * (owner.ndim - 1)])


def _block(places: list) -> int:
    """Returns where indices have their axes in what they index: in front, if they are separated."""
    axes = [i for i, x in enumerate(places) if x is not None]
    return axes[0] if axes[-1] - axes[0] < len(axes) else 0


def _store(op: private.OpOverload, target: EagerTensor, result: EagerTensor, out: bool) -> None:
    if out and not target.numel() and torch.can_cast(result.dtype, target.dtype):
        return target.become(result.to(target.dtype))
    if target.shape != result.shape or not torch.can_cast(result.dtype, target.dtype):
        what = lambda x: f"{str(x.dtype).removeprefix('torch.')}{[*x.shape]}"
        raise Unsupported(
            f"{op} gives {what(result)}, which a tensor of {what(target)} cannot hold",
            where=diagnostics.where(),
            why="a tensor on JAX keeps its shape and dtype",
            do="give an out of the result's shape and dtype" if out else "write x = x.op(...)",
        )
    array = result.array
    write(target, array if result.dtype is target.dtype else array.astype(to_jax(target.dtype)))
    return None


def functional(op: private.OpOverload, arguments: tuple) -> Any:
    """Returns the operator that computes from these arguments what another one writes; None if
    there is none.
    """
    name = op._schema.name.split("::")[1]
    namespace = getattr(torch.ops, op.namespace)
    signature = [(a.name, str(a.type)) for a in arguments]
    for packet_name in (name.removesuffix("_"), f"{name.removesuffix('_')}_functional"):
        packet = getattr(namespace, packet_name, None)
        for overload in packet.overloads() if packet is not None else ():
            form = getattr(packet, overload)
            if form._schema.is_mutable:
                continue
            if [(a.name, str(a.type)) for a in form._schema.arguments] == signature:
                return form
    return None
