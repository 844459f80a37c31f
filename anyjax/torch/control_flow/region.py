"""A branch or body as torch code that JAX traces on its own.

Tensors come in as arrays of that inner trace, everything it closes over is a constant of it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import torch
from torch.utils._pytree import tree_unflatten

from anyjax import trees
from anyjax.errors import Unsupported
from anyjax.torch.control_flow.branches import Path, all_paths, strong
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.tensor import GRADIENT, JaxTensor, value_of


class Region:
    """A torch function of these leaves as a function of the arrays among them.

    ``mode`` is the trace's FunctionMode. After a call, ``rebuild`` makes torch's output of arrays.
    """

    def __init__(self, mode, function: Callable, leaves):
        self.mode, self.function, self.leaves = mode, function, list(leaves)
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.tensors = [inner(leaves[i]) for i in self.places]
        self.given = [getattr(x, "origins", 0) for x in self.tensors]
        self.out: Any = None
        self.origins: list[int] = []
        self.written: dict[str, jax.Array] = {}

    @property
    def arrays(self) -> list[jax.Array]:
        """The tensors' arrays, with strong types, as loops need them."""
        return [strong(array_of(t)) for t in self.tensors]

    def __call__(self, *arrays) -> list[jax.Array]:
        trace = self.mode.trace
        trace.unread.clear()  # what is read in here are other arrays
        state = lambda name: array_of(trace.state[name])
        pushed = any(x is self.mode for x in private.function_modes())  # twice it would see ours
        with contextlib.nullcontext() if pushed else self.mode, trace.inside():
            run = partial(self.way, arrays, trace.keys.draws)
            outer, trace.within = trace.within, True
            try:
                out, written = all_paths(run, state, twice=False)
                self.written = dict(written)
            finally:
                trace.within = outer
        return [x for x, kind in zip(out, self.out[0]) if isinstance(kind, torch.dtype)]

    def way(self, arrays: tuple, draws: int, path: Path) -> tuple[list[Any], trees.Written]:
        """Returns the leaves of the output with these answers to conditions, and what is written to
        the state.
        """
        trace = self.mode.trace
        trace.path, trace.keys.draws = path, draws
        full = list(self.leaves)
        for place, tensor, array, bits in zip(self.places, self.tensors, arrays, self.given):
            full[place] = self.wrap(array, tensor.dtype, bits)
        if trace.tape is not None:
            trace.tape.enter(inner(full[place]) for place in self.places)
        state = [(name, t, inner(t)) for name, t in trace.state.items()]
        old_values = [value_of(inside) for _, _, inside in state]
        try:
            out, structure = flatten(self.function(*full))
            results = [inner(x) if isinstance(x, torch.Tensor) else x for x in out]
        finally:
            written = reset_all(state, old_values)
        self.out = [x.dtype if isinstance(x, torch.Tensor) else x for x in results], structure
        bits = [getattr(x, "origins", 0) for x in results]
        ways = itertools.zip_longest(bits, self.origins, fillvalue=0)
        self.origins = [x | y for x, y in ways]
        leaves = [strong(array_of(x)) if isinstance(x, torch.Tensor) else x for x in results]
        return leaves, trees.Written(written, set())

    def settle(self, count: int, run: Callable) -> None:
        """Finds which of the ``count`` tensors that go round a loop get a gradient in a turn: they
        have one in all turns.
        """
        bits_before: list[int] = []
        while bits_before != self.given and not all(x & GRADIENT for x in self.given[:count]):
            bits_before = [*self.given]
            jax.make_jaxpr(run)(*self.arrays)
            for i, bits in enumerate(self.origins[:count]):
                self.given[i] |= bits & GRADIENT

    def wrap(self, array, dtype, origins=0) -> torch.Tensor:
        """Returns an array as a tensor that torch code may write to."""
        return lift(JaxTensor(array, dtype, origins))

    def rebuild(self, arrays) -> Any:
        """torch's output, of the arrays that stand for its tensors."""
        static, structure = self.out
        rest = iter(arrays)
        leaves = [
            self.wrap(next(rest), x, origins) if isinstance(x, torch.dtype) else x
            for x, origins in zip(static, self.origins)
        ]
        return tree_unflatten(leaves, structure)


class Closed(Region):
    """A region that must leave the state alone."""

    def __call__(self, *arrays) -> list[jax.Array]:
        out = super().__call__(*arrays)
        if self.written:
            raise Unsupported(
                f"a branch or a loop's body writes to {', '.join(list(self.written)[:3])}",
                where=diagnostics.where(),
                why="what it computes exists in its own program only",
                do="return the new value from it and write it outside",
            )
        return out


def reset_all(state: list[tuple], old_values: list) -> dict[str, jax.Array]:
    """Takes back what was written to the state; returns it."""
    written = {}
    for (name, tensor, held), old in zip(state, old_values):
        value = inner(tensor)
        if value_of(value) is old:
            continue
        written[name] = array_of(value)
        if isinstance(held, JaxTensor):
            held.array = old
        reset(tensor, held)
    return written


def reset(tensor: torch.Tensor, held: torch.Tensor) -> None:
    """A functional tensor, and what shares its memory, back to ``held``."""
    private.replace(tensor, held)
    private.commit_update(tensor)
    private.sync_views(tensor)
