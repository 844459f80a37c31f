"""The part of a tape that leads from some tensors to others, as a function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from anyjax.errors import Unsupported
from anyjax.torch.autograd.tape import Tape
from anyjax.torch.core import diagnostics
from anyjax.torch.core.tensor import JaxTensor, needs_gradient


class Part:
    """Entries of the tape from ``inputs`` to ``outputs``: a function of (arrays of the inputs, of
    ``free``).

    An input that another one leads to is a variable of its own beside it, as in torch: a number
    that is added to what was computed.

    Attributes:
      used: for each input, whether any output was computed from it.
      free: what else is read and needs a gradient.
    """

    def __init__(self, tape: Tape, outputs: Sequence[JaxTensor], inputs: Sequence[JaxTensor]):
        self.outputs, self.inputs = outputs, inputs
        reached = {id(x) for x in inputs}
        ahead = []
        for entry in tape:
            if any(id(x) in reached for x in entry.ins):
                reached |= {id(x) for x in entry.outs if needs_gradient(x)}
                ahead.append(entry)
        needed = {id(y) for y in outputs}
        self.entries = []
        for entry in reversed(ahead):
            if any(id(x) in needed for x in entry.outs):
                needed |= {id(x) for x in entry.ins if id(x) in reached}
                self.entries.append(entry)
        self.entries.reverse()
        self.used = [id(x) in needed for x in inputs]
        self.produced = {id(x) for entry in self.entries for x in entry.outs}
        sources = {id(x) for x in inputs} | self.produced
        reads = (x for entry in self.entries for x in entry.ins)
        free = {id(x): x for x in reads if id(x) not in sources and needs_gradient(x)}
        self.free = [*free.values()]
        unreached = [y for y in outputs if id(y) not in reached and needs_gradient(y)]
        check(tape, [*self.free, *unreached], inputs)

    def __call__(self, inputs: Sequence[jax.Array], free: Sequence[jax.Array]) -> list[jax.Array]:
        values = {id(x): array for x, array in zip(self.free, free)}
        added: dict[int, jax.Array] = {}
        for x, array in zip(self.inputs, inputs):
            (added if id(x) in self.produced else values)[id(x)] = array
        for entry in self.entries:
            reads = (values.get(id(x), a) for x, a in zip(entry.ins, entry.arrays))
            for x, array in zip(entry.outs, entry.function(*reads)):
                values[id(x)] = array + added[id(x)] if id(x) in added else array
        return [values.get(id(y), y.array) for y in self.outputs]

    def start(self, inputs: Sequence[jax.Array]) -> list[jax.Array]:
        """Returns the inputs' arrays, zeros for those that are added."""
        zeros = jax.numpy.zeros_like
        return [zeros(a) if id(x) in self.produced else a for x, a in zip(self.inputs, inputs)]


def gradient(part: Part, batched: bool = False) -> Callable[..., list[jax.Array]]:
    """``(*inputs, *free, *cotangents)`` to the gradients of the inputs, conjugate as torch's are;
    ``batched`` cotangents have one more axis in front, and so have the gradients then.
    """
    count, end = len(part.inputs), len(part.inputs) + len(part.free)

    def function(*arrays: Any) -> list[jax.Array]:
        inputs, free, cotangents = part.start(arrays[:count]), arrays[count:end], arrays[end:]
        outs, pull = jax.vjp(lambda inputs: part(inputs, free), inputs)
        back = [g.astype(y.dtype).conj() for g, y in zip(cotangents, outs)]
        return [g.conj() for g in (jax.vmap(pull) if batched else pull)(back)[0]]

    return function


def check(tape: Tape, tensors: Sequence[JaxTensor], inputs: Sequence[JaxTensor]) -> None:
    """Raises Unsupported where the tape does not show that one of them depends on no input."""
    seen = {id(x): x for x in tensors}
    for entry in reversed(tape):
        results = [seen.pop(id(x), None) for x in entry.outs]
        if any(x is not None for x in results):
            seen |= {id(x): x for x in entry.ins if needs_gradient(x)}
    for x in seen.values():
        if not tape.independent(x, inputs):
            raise unknown(x)


def unknown(tensor: JaxTensor) -> Unsupported:
    """Returns the error for a tensor that a call made of which the tape knows nothing."""
    return Unsupported(
        "a gradient that forward takes itself",
        where=diagnostics.where(),
        why=f"how a tensor of shape {tuple(tensor.shape)} on the way was made is not known "
        "(as_strided of other memory, for one)",
        do="take this gradient with jax.grad, of the converted function",
    )
