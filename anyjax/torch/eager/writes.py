"""In-place operators and ``out=``: their functional form computes, then the result is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch

from anyjax.errors import Unsupported
from anyjax.table import REQUIRED
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.call import Call
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.eager.programs import compute
from anyjax.torch.eager.tensor import EagerTensor
from anyjax.torch.eager.views import write
from anyjax.typing import PyTree

aten = torch.ops.aten


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
