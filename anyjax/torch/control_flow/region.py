"""A branch or body as torch code that JAX traces on its own.

Tensors come in as arrays of that inner trace, everything it closes over is a constant of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import torch
from jax import lax
from torch.utils._pytree import tree_unflatten

from anyjax.errors import Unsupported
from anyjax.torch.core import diagnostics, private
from anyjax.torch.core.lifting import array_of, inner, lift
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.core.tensor import JaxTensor, value_of


class Region:
    """A torch function of these leaves as a function of the arrays among them.

    ``mode`` is the trace's FunctionMode. After a call, ``rebuild`` makes torch's output of arrays.
    """

    def __init__(self, mode, function: Callable, leaves):
        self.mode, self.function, self.leaves = mode, function, list(leaves)
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.tensors = [inner(leaves[i]) for i in self.places]
        self.out: Any = None
        self.origins: list[int] = []
        self.written: dict[str, jax.Array] = {}

    @property
    def arrays(self) -> list[jax.Array]:
        """The tensors' arrays, with strong types, as loops need them."""
        return [strong(array_of(t)) for t in self.tensors]

    def __call__(self, *arrays) -> list[jax.Array]:
        full = list(self.leaves)
        for place, tensor, array in zip(self.places, self.tensors, arrays):
            full[place] = self.wrap(array, tensor.dtype, getattr(tensor, "origins", 0))
        state = [(name, t, inner(t)) for name, t in self.mode.trace.state.items()]
        old_values = [value_of(inside) for _, _, inside in state]
        self.mode.trace.unread.clear()  # what is read in here are other arrays
        with self.mode, self.mode.trace.inside():
            out, structure = flatten(self.function(*full))
        results = [inner(x) if isinstance(x, torch.Tensor) else x for x in out]
        self.written = {}
        for (name, t, inside), old in zip(state, old_values):
            value = inner(t)
            if value_of(value) is old:
                continue
            self.written[name] = array_of(value)
            if isinstance(inside, JaxTensor):
                inside.array = old
            reset(t, inside)
        self.out = [x.dtype if isinstance(x, torch.Tensor) else x for x in results], structure
        self.origins = [getattr(x, "origins", 0) for x in results]
        return [strong(array_of(x)) for x in results if isinstance(x, torch.Tensor)]

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


def reset(tensor: torch.Tensor, held: torch.Tensor) -> None:
    """A functional tensor, and what shares its memory, back to ``held``."""
    private.replace(tensor, held)
    private.commit_update(tensor)
    private.sync_views(tensor)


def strong(x):
    """Without JAX's weak type, which a loop's carry must not change."""
    return lax.convert_element_type(x, x.dtype)
