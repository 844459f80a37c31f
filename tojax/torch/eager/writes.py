"""In-place operators and ``out=``: their functional form computes, then the result is stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from tojax.errors import Unsupported
from tojax.torch.core import diagnostics, private
from tojax.torch.core.call import Call
from tojax.torch.core.dtypes import to_jax
from tojax.torch.eager.fallback import fallback
from tojax.torch.eager.tensor import EagerTensor
from tojax.torch.eager.views import write
from tojax.torch.engine import foreach

aten = torch.ops.aten


def run(call: Call, args: tuple, kwargs: dict[str, Any], run: Callable[..., Any]) -> Any:
    """Runs an operator that writes to its arguments; returns those that it returns."""
    op = call.op
    form = functional(op)
    if form is None:
        if foreach.serves(op) or op in private.decompositions:
            return fallback(op, args, kwargs)
        raise Unsupported(
            f"{op} on a tensor on JAX",
            where=diagnostics.where(),
            why="it changes more of a tensor than its values",
            do="use its form that returns a new tensor",
        )
    bound = dict(zip((p.name for p in call.params), args)) | kwargs
    targets = [bound[name] for name in call.signature.writes]
    for target in targets:
        if not isinstance(target, EagerTensor):
            raise Unsupported(
                f"{op} writes a result of JAX to a tensor of torch",
                where=diagnostics.where(),
                why="they are on different devices",
                do="give a tensor on JAX, or copy the result: target.copy_(result)",
            )
    outs = {a.name for a in op._schema.arguments if a.is_out}
    kept = {k: v for k, v in kwargs.items() if k not in outs}
    required = (a.name for a in form._schema.arguments if not a.has_default_value())
    defaults = {p.name: p.default for p in call.params}
    kept |= {name: defaults[name] for name in required if name not in bound}
    out = run(form, args, kept)
    if form.is_view:  # such as squeeze_
        targets[0].become(out)
        return targets[0]
    results = list(out) if isinstance(out, (tuple, list)) else [out]
    before = len(results) - len(targets)
    for target, result in zip(targets, results[before:]):
        _store(op, target, result, bool(outs))
    returns = len(op._schema.returns)
    returned = [*results[:before], *targets][:returns]
    return returned[0] if returns == 1 else tuple(returned) if returns else None


def _store(op: Any, target: EagerTensor, result: EagerTensor, out: bool) -> None:
    if out and not target.numel() and target.dtype is result.dtype:
        return target.become(result)
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


@lru_cache(None)
def functional(op: Any) -> Any:
    """Returns the operator that computes what another one writes; None if there is none."""
    arguments = op._schema.arguments
    names = [a.name for a in arguments if not a.is_out]
    name = op._schema.name.removeprefix("aten::")
    namespace = getattr(torch.ops, op.namespace)
    bare = name.removesuffix("_")
    same = [bare] if bare != name else [name]
    for packet_name in (*same, f"{bare}_functional"):
        packet = getattr(namespace, packet_name, None)
        for overload in packet.overloads() if packet is not None else ():
            form = getattr(packet, overload)
            if form._schema.is_mutable or [a.name for a in form._schema.arguments] != names:
                continue
            if [str(a.type) for a in form._schema.arguments] == [
                str(a.type) for a in arguments if not a.is_out
            ]:
                return form
    return None
