"""What a block computes: its calls of lowerings, which can be made again with other arrays."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import torch

from tojax.torch.aliasing.no_grad import cut
from tojax.torch.core import strides
from tojax.torch.core.pytrees import flatten
from tojax.torch.core.tensor import JaxTensor


class Step(NamedTuple):
    """``function(*values)`` gave ``out``: arrays, and lists and tuples with arrays in them."""

    function: Callable
    values: Sequence[Any]
    out: Any


class Program:
    """The steps of a run.

    Attributes:
      given: numbers of the arrays that the block was given, by id; ``read`` are those it used.
      keys: what it drew random numbers from, in order.
      sources: by the id of an array that a step gave, those of ``given`` that it comes from.
      made: the tensors that steps gave, weakly.
      why: what cannot be done again.
    """

    def __init__(self, given: dict[int, int]):
        self.given = given
        self.read: set[int] = set()
        self.steps: list[Step] = []
        self.keys: list[jax.Array] = []
        self.sources: dict[int, frozenset[int]] = {}
        self.made: list[weakref.ref] = []
        self.why: str | None = None
        self.inlined: Any = None

    def lowered(self, trace: Any, call: Any, lowering: Callable, values: list, out, made) -> None:
        """An operator that was lowered: ``out`` are arrays, ``made`` the tensors around them."""
        if trace.writing or (call.writes and any(x is not None for x in out[1:])):
            self.why = f"{call.op} writes to a tensor"
        if call.op in strides.STRIDED:
            self.why = f"{call.op} sees memory around a tensor"
        if call.random and values[0] is not None:
            self.keys.append(values[0])
        function = lowering
        if not torch.is_grad_enabled():
            function = lambda *values: cut(call, lowering(*values), [], False)
        self.add(Step(function, values, out), made)

    def add(self, step: Step, made: Any) -> None:
        """A step, and the tensors that it gave."""
        drawn = {*map(id, self.keys)}
        sources: set[int] = set()
        for x in arrays_in(step.values):
            if id(x) in self.given:
                self.read.add(self.given[id(x)])
                sources.add(id(x))
            elif id(x) in self.sources:
                sources |= self.sources[id(x)]
            elif isinstance(x, jax.core.Tracer) and id(x) not in drawn:
                self.why = self.why or "it computes with a value from elsewhere"
        self.steps.append(step)
        for x in arrays_in(step.out):
            if id(x) not in self.given:
                self.sources[id(x)] = frozenset(sources)
        self.made += [weakref.ref(x) for x in flatten(made)[0] if isinstance(x, JaxTensor)]

    def run(self, outs: Sequence[int], arrays: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
        """What stands in the place of the arrays with these ids, where other ones are given."""
        now = dict(zip([*self.given, *map(id, self.keys)], [*arrays, *keys]))
        current = lambda x: now.get(id(x), x)
        for function, values, out in self.steps:
            before = arrays_in(out)
            if not all(id(x) in now for x in before):  # else the same comparison again
                now.update(zip(map(id, before), arrays_in(function(*mapped(current, values)))))
        return [now[x] for x in outs]

    def again(self, outs: Sequence[int], arrays: list[Any], keys: list[Any]) -> list[Any]:
        """The same as a program of JAX, which is made once and inlined."""
        if self.inlined is None:
            self.inlined = jax.jit(lambda *given: self.run(outs, *given), inline=True)
        return self.inlined(arrays, keys)

    def over(self) -> None:
        """Lets go of tracers, which must not outlive their trace."""
        self.steps.clear()
        self.keys.clear()
        self.inlined = None

    @staticmethod
    def unwatched(lowering: Callable) -> Callable:
        """The lowering, which is none of the block's code: its calls are not followed."""

        def call(*values: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(None)
            try:
                return lowering(*values)
            finally:
                sys.settrace(before)

        return call


def arrays_in(value: Any) -> list[Any]:
    """The arrays in lists and tuples."""
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in arrays_in(item)]
    return [value] if isinstance(value, jax.Array) else []


def mapped(function: Callable, value: Any) -> Any:
    """Lists and tuples with ``function`` of each array in them."""
    if isinstance(value, (list, tuple)):
        items = [mapped(function, x) for x in value]
        return tuple.__new__(type(value), items) if isinstance(value, tuple) else items
    return function(value) if isinstance(value, jax.Array) else value
