"""Gradients that torch has operators for: ``NAME_backward`` by JAX's derivative of ``NAME``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import torch

from anyjax.torch.core import private
from anyjax.torch.core.lifting import array_of
from anyjax.torch.core.schema import overloads, table
from anyjax.torch.core.tensor import differentiable
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from anyjax.torch.lowering.run import Run

aten = torch.ops.aten
GRADS = ("grad_output", "grad", "grad_out")
SIZES = "output_size"  # of adaptive pooling, whose gradient is told by its shape
# Rather than torch's decomposition, which subtracts 1 from a sigmoid near 1.
BETTER = {aten.soft_margin_loss_backward.default}


def of(run: Run, op: private.OpOverload) -> Callable[..., Any] | None:
    """Returns a function that computes a gradient; None where there is no such operator."""
    forward_op = _forward(op)
    return None if forward_op is None else partial(_by_name, run, op, forward_op)


def derivatives() -> Iterator[tuple[private.OpOverload, private.OpOverload]]:
    """Yields gradients without a row, each with the operator whose row serves it."""
    is_torchs = lambda op: op in private.decompositions or private.has_kernel(op, private.COMPOSITE)
    for forward_op in [op for op in table if isinstance(op, private.OpOverload)]:
        namespace, _, name = forward_op._schema.name.partition("::")
        name = f"{name.removesuffix('_forward')}_backward"
        for op in overloads(getattr(getattr(torch.ops, namespace), name, "")):
            if op not in table and _forward(op) is forward_op and not is_torchs(op):
                yield op, forward_op


@lru_cache(None)
def _forward(op: private.OpOverload) -> private.OpOverload | None:
    """Returns the operator that another one is the gradient of."""
    name = op._schema.name.split("::")[1]
    if not name.endswith("_backward"):
        return None
    name, overload = name.removesuffix("_backward"), op._schema.overload_name or "default"
    for forward in (name, f"{name}_forward", name.removeprefix("_")):
        packet = getattr(getattr(torch.ops, op.namespace), forward, None)
        if packet is not None and hasattr(packet, overload):
            return _with_arguments(getattr(packet, overload), _names(op))
    return None


def _names(op: private.OpOverload) -> set[str]:
    return {a.name for a in op._schema.arguments}


def _with_arguments(op: private.OpOverload, names: set[str]) -> private.OpOverload | None:
    """Returns an operator whose arguments its gradient has, None for others."""
    optional = {SIZES, "self"} if "input_size" in names else {SIZES}
    fits = lambda a: a.name in names or a.has_default_value() or _may_be_none(a)
    has_all = all(fits(a) or a.name in optional for a in op._schema.arguments)
    return op if has_all and not names.isdisjoint(GRADS) else None


def _by_name(
    run: Run, op: private.OpOverload, forward_op: private.OpOverload,
    *args: PyTree, **kwargs: PyTree,
) -> Any:  # fmt: skip
    """Returns gradients by the arguments that an operator and its gradient have in common."""
    bound = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}
    bound |= dict(zip((a.name for a in op._schema.arguments), args)) | kwargs
    if "input_size" in bound:  # the gradient does not depend on what it was of
        bound["self"] = bound["grad_output"].new_zeros(bound["input_size"])
    grad = next(bound[name] for name in GRADS if name in bound)
    arguments = forward_op._schema.arguments
    names = [a.name for a in arguments if a.name in bound or _may_be_none(a)]
    forward = {name: bound.get(name) for name in names}
    if SIZES in {a.name for a in arguments} and SIZES not in forward:
        forward[SIZES] = [*grad.shape[-2 if "2d" in str(op) else -3 :]]
    is_float = lambda x: isinstance(x, torch.Tensor) and differentiable(x.dtype)
    floats = [n for n, x in forward.items() if is_float(x)][: len(op._schema.returns)]
    mask = bound.get("output_mask", [True] * len(floats))
    grads = pulled(run, forward_op, forward, [n for n, m in zip(floats, mask) if m], grad)
    out = [grads.get(name) for name in floats]
    return out[0] if len(op._schema.returns) == 1 else tuple(out)


def _may_be_none(argument: PyTree) -> bool:
    return str(argument.real_type).startswith("Optional") and not argument.has_default_value()


def pulled(
    run: Run, op: private.OpOverload, forward: dict[str, PyTree], names: list[str],
    *grads: torch.Tensor | None,
) -> dict[str, Any]:  # fmt: skip
    """Returns the gradients of an operator's first results by these arguments."""

    def function(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        tensors = {n: run.make(x, forward[n].dtype) for n, x in zip(names, arrays)}
        with run.inside(), torch.enable_grad():
            out = op(**forward | tensors)
        outs = out[: len(grads)] if isinstance(out, (tuple, list)) else [out]
        return tuple(map(array_of, outs))

    out, pull = jax.vjp(function, *(array_of(forward[n]) for n in names))
    cotangents = tuple(
        jnp.zeros_like(x) if g is None else array_of(g).astype(x.dtype) for g, x in zip(grads, out)
    )
    return {n: run.make(g, forward[n].dtype) for n, g in zip(names, pull(cotangents))}
