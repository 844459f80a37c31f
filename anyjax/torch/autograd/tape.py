"""The operators that a trace has computed, in order, once code asks for gradients inside of it.

torch's own autograd is off while JAX traces. So ``torch.autograd.grad(y, x)`` takes the entries
that lead from ``x`` to ``y``, as one JAX function of ``x`` and of all else that they read, and asks
``jax.vjp``; the answer is an entry, too, so that gradients of gradients need nothing more.
Most programs never ask, and pay nothing: the first question ends the run, the next keeps a tape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import torch
from torch.utils._pytree import tree_unflatten

from anyjax.torch.core import private
from anyjax.torch.core.current_trace import Restart
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.pytrees import flatten, map_tensors
from anyjax.torch.core.tensor import GRADIENT, JaxTensor, differentiable, needs_gradient, origins_of
from anyjax.typing import PyTree


class NeedsTape(Restart):
    """Code asks for gradients in a run that keeps no tape."""

    def remember(self, notes: dict) -> None:
        """Makes all runs from now on keep one."""
        notes[Tape] = True


class Entry(NamedTuple):
    """``outs`` are what ``function`` gave for ``arrays``, those of ``ins`` when it was called."""

    function: Callable[..., list[jax.Array]]
    ins: list[JaxTensor]
    arrays: list[jax.Array]
    outs: list[JaxTensor]


class Tape(list[Entry]):
    """The entries of one trace, and the tensors whose gradients are ``held`` in ``.grad``. Tensors
    count by identity: several may have the same array.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[JaxTensor] = []
        self.entered: dict[int, tuple[JaxTensor, int, int]] = {}  # with what there was before

    def note(self, function: Callable, ins: Iterable[Any], outs: Iterable[JaxTensor]) -> None:
        """Keeps a call with operands ``ins``, if any of them needs a gradient."""
        ins = [*ins]
        if any(map(needs_gradient, ins)):
            self.append(Entry(function, ins, [x.array for x in ins], [*outs]))

    def operator(
        self, again: Callable, given: tuple, operands: Iterable[object], out: PyTree
    ) -> None:
        """Keeps an operator's call; ``again`` computes it for other tensors in ``given``."""
        ins = {id(x): x for x in operands if isinstance(x, JaxTensor)}

        def function(*arrays: jax.Array) -> list[jax.Array]:
            new = {k: JaxTensor(a, t.dtype) for (k, t), a in zip(ins.items(), arrays)}
            out = again(*map_tensors(lambda t: new.get(id(t), t), given))
            return [x for x in jax.tree.leaves(out) if isinstance(x, jax.Array)]

        self.note(function, ins.values(), [x for x in flatten(out)[0] if isinstance(x, JaxTensor)])

    def enter(self, tensors: Iterable[JaxTensor]) -> None:
        """Keeps what stands for tensors of outside in code that JAX traces on its own."""
        self.entered |= {id(x): (x, len(self), len(self.leaves)) for x in tensors}

    def independent(self, tensor: JaxTensor, inputs: Iterable[JaxTensor]) -> bool:
        """Returns whether a tensor that no entry made does not depend on any of ``inputs``: a leaf,
        or one that entered code in which all of them were made.
        """
        if id(tensor) not in self.entered:
            return tensor.holder is not None
        _, entries, leaves = self.entered[id(tensor)]
        before = {id(x) for entry in self[:entries] for x in (*entry.ins, *entry.outs)}
        before |= {id(x) for x in self.leaves[:leaves]}
        return before.isdisjoint(map(id, inputs))

    def whole(self, function: Callable, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """``function(*args, **kwargs)`` of tensors, which computes in JAX, as one entry; tensors
        that it closes over are among those that it reads.
        """
        leaves, structure = flatten((args, kwargs))
        tensors = {i: inner(x) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)}
        form: list[Any] = []

        def pure(*arrays: jax.Array) -> list[jax.Array]:
            full = [*leaves]
            for (i, t), array in zip(tensors.items(), arrays):
                full[i] = like(leaves[i], JaxTensor(array, t.dtype, getattr(t, "origins", 0)))
            args, kwargs = tree_unflatten(full, structure)
            count = len(self)
            out, structure_out = flatten(function(*args, **kwargs))
            del self[count:]  # of tensors that exist in there alone
            form[:] = [*map(kind_of, out)], structure_out
            return [array_of(x) for x in out if isinstance(x, torch.Tensor)]

        closed = jax.make_jaxpr(pure)(*map(array_of, tensors.values()))
        recorded = self.tensors()
        operands = [*(recorded.get(id(x), x) for x in closed.consts), *tensors.values()]
        values = [*closed.consts, *map(array_of, tensors.values())]
        places = [i for i, x in enumerate(operands) if isinstance(x, JaxTensor)]
        run = hoisted(closed)

        def again(*arrays: jax.Array) -> list[jax.Array]:
            full = [*values]
            for i, array in zip(places, arrays):
                full[i] = array
            return run(*full)

        origins, rest = origins_of(operands), iter(run(*values))
        out = [x.tensor(next(rest), origins) if isinstance(x, Kind) else x for x in form[0]]
        outs = [inner(x) for x in out if isinstance(x, torch.Tensor)]
        self.note(again, [operands[i] for i in places], outs)
        return tree_unflatten(out, form[1])

    def tensors(self) -> dict[int, JaxTensor]:
        """Returns the first tensor of each array."""
        tensors: dict[int, JaxTensor] = {}
        for tensor in self.leaves:
            tensors.setdefault(id(tensor.array), tensor)
        for entry in self:
            for tensor, array in zip(entry.ins, entry.arrays):
                tensors.setdefault(id(array), tensor)
            for tensor in entry.outs:
                tensors.setdefault(id(tensor.array), tensor)
        return tensors


class Kind(NamedTuple):
    """The dtype of a tensor, and whether it is functional: not the tensor, which holds a tracer."""

    dtype: torch.dtype
    functional: bool

    def tensor(self, array: jax.Array, origins: int) -> torch.Tensor:
        tensor = made(array, self.dtype, origins)
        return lift(tensor) if self.functional else tensor


def kind_of(value: object) -> object:
    """Returns the kind of a tensor; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return Kind(value.dtype, private.is_functional(value))


def hoisted(closed: Any) -> Callable[..., list[jax.Array]]:
    """Returns a traced program as a function of (its constants, its arguments)."""
    count = len(closed.consts)
    return lambda *arrays: jax.core.eval_jaxpr(closed.jaxpr, arrays[:count], *arrays[count:])


def like(model: torch.Tensor, tensor: JaxTensor) -> torch.Tensor:
    """Returns the tensor, functional where ``model`` is."""
    return lift(tensor) if private.is_functional(model) else tensor


def made(array: jax.Array, dtype: torch.dtype, origins: int) -> JaxTensor:
    """A tensor that needs a gradient only if it can have one."""
    return JaxTensor(array, dtype, origins if differentiable(dtype) else origins & ~GRADIENT)


def marked(out: PyTree, operands: Iterable[torch.Tensor]) -> Any:
    """The result of what is no operator, whose tensors need a gradient where an operand does."""
    needed = any(needs_gradient(inner(x)) for x in operands) and torch.is_grad_enabled()
    for x in flatten(out)[0] if needed else ():
        if isinstance(x, torch.Tensor) and differentiable(x.dtype):
            value = inner(x)
            if isinstance(value, JaxTensor):
                value.origins |= GRADIENT
    return out
