"""Draws from a ``torch.Generator`` that forward seeds itself, or from torch's default one after
``torch.manual_seed`` in forward: torch's own numbers, as constants; and states of generators.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import torch

from anyjax.errors import FrozenDraw, Unsupported
from anyjax.torch.core import current_trace, diagnostics
from anyjax.torch.core.lifting import inner
from anyjax.torch.core.tensor import JaxTensor
from anyjax.typing import PyTree
from anyjax.warn_once import warn

if TYPE_CHECKING:
    from anyjax.torch.core.keys import Keys

aten = torch.ops.aten
STATES = 0x616E796A6178 << 12  # seeds that nobody chooses

# Draws that take no more than a shape and a dtype of their first argument.
SHAPED = {aten.normal_functional, aten.rand_like, aten.randn_like, aten.randint_like}
TORCHS = torch.default_generator
IN_PLACE = {"uniform", "exponential", "cauchy", "log_normal", "geometric", "random"}  # torch's own


class Default(torch.Generator):
    """torch's default generator where a thread traces: its seeds and states are the trace's."""

    def get_state(self) -> torch.Tensor:
        """Returns the state that the next draws follow from."""
        return current_trace.trace().generators.state() if traces() else TORCHS.get_state()

    def set_state(self, new_state: torch.Tensor) -> torch.Generator:
        """Draws from a state on."""
        if not traces():
            return TORCHS.set_state(new_state)
        current_trace.trace().generators.restore(inner(new_state))
        return self

    def manual_seed(self, seed: int) -> torch.Generator:
        """Seeds the trace's generator; torch's own stays as it is."""
        if not traces():
            return TORCHS.manual_seed(seed)
        current_trace.trace().generators.default = torch.Generator().manual_seed(seed)
        return self

    def initial_seed(self) -> int:
        """Returns the last seed."""
        default = current_trace.trace().generators.default if traces() else None
        return (default or TORCHS).initial_seed()

    def seed(self) -> int:
        """Draws from the key again, as torch does from the machine's noise."""
        if not traces():
            return TORCHS.seed()
        current_trace.trace().generators.default = None
        return TORCHS.initial_seed()


traces = current_trace.active
IN_TRACES = Default()


class Generators:
    """The generators of one trace, by their state: the dispatcher hands over new objects.

    ``default`` draws where an operator names none, once forward has called ``torch.manual_seed``.

    Args:
      keys: draw before that; a state stands for their count.
      began: the state of torch's own default generator when the trace began.
    """

    def __init__(self, keys: Keys, began: torch.Tensor) -> None:
        self.keys, self.began = keys, began
        self.counts: dict[bytes, tuple[jax.Array | None, int]] = {}
        self.default: torch.Generator | None = None
        self.states: set[bytes] = set()
        self.met: list[torch.Generator] = []

    def meet(self, kwargs: dict[str, PyTree]) -> None:
        """Remembers one that the code itself holds."""
        if kwargs["generator"] is IN_TRACES:
            kwargs["generator"] = None
        if isinstance(generator := kwargs["generator"], torch.Generator):
            self.met += [generator] if not any(x is generator for x in self.met) else []

    def draw(self, op: object, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        """Returns the result of a random operator; NotImplemented where a key has to serve it."""
        generator = next(
            (x for x in (*args, *kwargs.values()) if isinstance(x, torch.Generator)), None
        )
        if generator is None and self.default is None and self.reseeded(TORCHS):
            self.default = TORCHS
        if generator is None and self.default is not None:
            return self._draw_by_default(op, args, kwargs)
        if generator is None or not self.seeded(generator):
            return NotImplemented
        out = _draw(op, args, kwargs)
        if out is not NotImplemented:
            self.states.add(state(generator))
        return out

    def _draw_by_default(self, op: object, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        with _in_place_of_torchs(self.default):
            out = _draw(op, args, kwargs)
        if out is NotImplemented:
            raise Unsupported(
                f"{op} draws random numbers after torch.manual_seed",
                where=diagnostics.where(),
                why="torch's numbers for that seed depend on values that only the program knows",
                do="leave torch.manual_seed out of forward and pass rng, or draw with torch.rand",
            )
        return out

    def reseeded(self, generator: torch.Generator) -> bool:
        """Returns whether forward has seeded torch's own: another thread may only have drawn."""
        same = state(generator) == self.began.numpy().tobytes()
        return not same and self.seeded(generator)

    def state(self) -> torch.Tensor:
        """Returns what the next draws follow from: a state of its own for each count of keys."""
        if self.default is not None:
            return self.default.get_state()
        count = self.keys.draws
        stand_in = torch.Generator().manual_seed(STATES + count).get_state()
        self.counts[stand_in.numpy().tobytes()] = self.keys.rng, count
        return stand_in

    def restore(self, new_state: torch.Tensor) -> None:
        if (count := self.counts.get(new_state.numpy().tobytes())) is None:
            self.default = torch.Generator()
            self.default.set_state(new_state)
            return
        self.default = None
        if count[0] is not self.keys.rng:
            raise Unsupported(
                "torch.set_rng_state with a state from outside of a branch or a loop's body",
                where=diagnostics.where(),
                why="each of its runs draws from a key of its own",
                do="save and restore the state on the same side",
            )
        self.keys.draws = count[1]

    def seeded(self, generator: torch.Generator) -> bool:
        """Returns whether nothing was drawn from it since it was seeded, or only by this trace."""
        new = torch.Generator(generator.device).manual_seed(generator.initial_seed())
        return state(generator) in {state(new), *self.states}

    def outlive(self) -> None:
        """Warns where one of them is not forward's own: each call of torch would go on drawing."""
        compiled = isinstance(jnp.zeros(()), jax.core.Tracer)
        # Weak references to one came with torch 2.11.
        references = lambda objects: [sys.getrefcount(x) for x in objects]
        shared = [count > references([object()])[0] for count in references(self.met)]
        if self.states and compiled and any(shared):
            warn(
                "forward drew with a torch.Generator that it did not make itself: the compiled "
                "program repeats these numbers in every call. Draw without it, and pass rng",
                FrozenDraw,
            )


def _draw(op: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """torch's own numbers; NotImplemented where they depend on traced values."""
    name = op._schema.name.removeprefix("aten::")
    if op.overloadpacket in SHAPED or op is aten.bernoulli.p or name in IN_PLACE:
        args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
    if name in IN_PLACE:
        op = getattr(getattr(aten, f"{name}_"), op._schema.overload_name or "default")
    if any(isinstance(x, JaxTensor) for x in (*args, *kwargs.values())):
        return NotImplemented
    return op(*args, **kwargs)


@contextlib.contextmanager
def _in_place_of_torchs(generator: torch.Generator) -> Iterator[None]:
    """torch's default generator goes on where this one is, for a while."""
    if generator is TORCHS:
        yield
        return
    torchs_state = TORCHS.get_state()
    TORCHS.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(TORCHS.get_state())
        TORCHS.set_state(torchs_state)


def state(generator: torch.Generator) -> bytes:
    """Returns the state that the next numbers follow from."""
    return generator.get_state().numpy().tobytes()
