"""Composite operators with a lowering of the user's own, below torch's autograd: there C++ would
take them apart.

An operator with the same schema stands for each. Autograd sees it whole, on JAX and in graphs of
``torch.compile``; its gradient is JAX's derivative of the lowering.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import torch

from anyjax.torch.core import private
from anyjax.torch.core.call import call_of
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.schema import read, table
from anyjax.torch.core.tensor import JaxTensor, differentiable
from anyjax.typing import PyTree

DEFAULT = r"""=(\[[^]]*\]|"[^"]*"|'[^']*'|[^,)]*)"""
SPACE = "anyjax_lowered"
COMPILES = ContextVar("COMPILES", default=False)  # whether torch.compile makes a graph for us
WHOLE: dict[Any, Whole] = {}
_seen = 0


def exist() -> bool:
    """Returns whether there are such operators; takes note of those that came since."""
    global _seen  # the version of the table
    if table.version != _seen:
        for op in filter(_is_composite, [*table.users]):
            WHOLE[op] = WHOLE.get(op) or Whole(op)
            WHOLE[op].lower()
        _seen = table.version
    return bool(WHOLE)


def _is_composite(op: Any) -> bool:
    is_ours = not isinstance(op, private.OpOverload) or op.is_view or op.namespace == SPACE
    return not is_ours and private.has_kernel(op, private.COMPOSITE)


class Whole:
    """An operator in the place of a composite one; a random one takes a seed first."""

    def __init__(self, op: private.OpOverload):
        self.op = op
        self.name = str(op).removeprefix("aten.").replace(".", "_")
        schema = re.sub(DEFAULT, "", str(op._schema))  # which torch would leave out of calls
        arguments, _, returns = schema.partition("(")[2].rpartition(") -> ")
        arguments = f"Tensor? seed, {arguments}" if call_of(op).random else arguments
        define = partial(torch.library.define, lib=LIBRARY)
        define(f"{SPACE}::{self.name}", f"({arguments}) -> {returns}")
        define(f"{SPACE}::{self.name}_grad", f"(Tensor?[] grads, {arguments}) -> Tensor[]")
        self.forward = getattr(getattr(torch.ops, SPACE), self.name).default
        self.backward = getattr(getattr(torch.ops, SPACE), f"{self.name}_grad").default
        torch.library.register_fake(self.forward, self.by_torch, lib=LIBRARY)
        torch.library.register_fake(self.backward, _alike, lib=LIBRARY)
        saved = {"setup_context": self.save, "lib": LIBRARY}
        torch.library.register_autograd(self.forward, self.differentiate, **saved)
        op.py_kernels.pop(private.COMPOSITE, None)
        op.py_impl(private.COMPOSITE)(self.kernel)

    def lower(self) -> None:
        """Gives these operators the lowering that the table has now."""
        lowering = table[self.op].lowering
        seeded = lambda seed, *args: lowering(None if seed is None else jax.random.key(seed), *args)
        function = seeded if call_of(self.op).random else lowering
        for op, form in ((self.forward, function), (self.backward, partial(_pulled, function))):
            fitting = lambda *args, form=form: form(*args)
            names = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in read(op).kept]
            fitting.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
            table.update({op: fitting})

    def kernel(self, *args: PyTree, **kwargs: PyTree) -> Any:
        """Serves the operator for us; for anybody else, torch does."""
        tensors = flatten((args, kwargs))[0]
        if not COMPILES.get() and not any(isinstance(x, JaxTensor) for x in tensors):
            return self.op._op_dk(private.COMPOSITE, *args, **kwargs)
        call, arguments = call_of(self.op), self.op._schema.arguments
        bound = dict(zip([a.name for a in arguments], args)) | kwargs
        values = {p.name: bound.get(p.name, p.default) for p in call.params}
        args = tuple(values[a.name] for a in arguments if not a.kwarg_only)
        kwargs = {a.name: values[a.name] for a in arguments if a.kwarg_only}
        if call.random:
            inert = call.inert([values[p.name] for p in call.params if p.kind != "dropped"])
            args = (None if inert else torch.randint(1 << 30, ()), *args)
        return self.forward(*args, **kwargs)

    def by_torch(self, *args: PyTree, **kwargs: PyTree) -> Any:
        outer = COMPILES.set(False)
        try:
            seed = int(call_of(self.op).random)
            return self.op(*args[seed:], **kwargs)
        finally:
            COMPILES.reset(outer)

    def save(self, ctx: Any, inputs: tuple, output: Any, keyword_only_inputs: Any = None) -> None:
        """Keeps the arguments for the gradient."""
        ctx.named = keyword_only_inputs or {}
        leaves, ctx.structure = flatten(inputs)
        ctx.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*[leaves[i] for i in ctx.places])
        ctx.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]

    def differentiate(self, ctx: Any, *grads: PyTree) -> Any:
        """Returns the gradients of the arguments that have one."""
        leaves = [*ctx.leaves]
        for place, tensor in zip(ctx.places, ctx.saved_tensors):
            leaves[place] = tensor
        args = ctx.structure.unflatten(leaves)
        rest = iter(self.backward(flatten(grads)[0], *args, **ctx.named))
        grad = lambda x: (
            next(rest) if isinstance(x, torch.Tensor) and differentiable(x.dtype) else None
        )
        has = lambda x: isinstance(x, (list, tuple)) and any(isinstance(y, torch.Tensor) for y in x)
        return tuple([[grad(y) for y in x] if has(x) else grad(x) for x in args])


def _alike(grads: PyTree, *args: PyTree, **kwargs: PyTree) -> list[torch.Tensor]:
    tensors = [x for x in flatten(args)[0] if isinstance(x, torch.Tensor)]
    return [torch.empty_like(x) for x in tensors if differentiable(x.dtype)]


def _pulled(lowering: Callable, grads: list[PyTree], *args: PyTree) -> list[jax.Array]:
    """Returns the gradients of a lowering's arrays of floats."""
    leaves, structure = jax.tree.flatten(args, is_leaf=lambda x: x is None)
    is_float = lambda x: isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)
    places = [i for i, x in enumerate(leaves) if is_float(x)]

    def function(*arrays: jax.Array) -> list[jax.Array]:
        full = [*leaves]
        for place, array in zip(places, arrays):
            full[place] = array
        return jax.tree.leaves(lowering(*jax.tree.unflatten(structure, full)))

    out, pull = jax.vjp(function, *[leaves[i] for i in places])
    cotangents = [jnp.zeros_like(x) if g is None else g.astype(x.dtype) for g, x in zip(grads, out)]
    return [*pull(cotangents)]


LIBRARY = torch.library.Library(SPACE, "FRAGMENT")
