"""One run of a block: what a sibling would have to find to run alike, and what it would give."""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from tojax.torch.core import private
from tojax.torch.core.lifting import inner, lift
from tojax.torch.core.pytrees import flatten
from tojax.torch.core.tensor import GRADIENT, JaxTensor
from tojax.torch.reuse.forms import SETTINGS, Forms, Unprovable
from tojax.torch.reuse.program import Program, Step
from tojax.torch.reuse.reads import OPEN, Reads, aside, form, watching

Head = Callable[[Forms], Hashable]


class Result(NamedTuple):
    """A tensor that a block gives: its array by id, the numbers of those that it was computed from,
    and what torch code may ask of it.
    """

    array: int
    sources: frozenset[int]
    dtype: torch.dtype
    layout: tuple | None
    gradient: int
    bounds: tuple[int, int] | None

    def tensor(self, array: jax.Array, origins: int) -> torch.Tensor:
        """Another one of the same kind."""
        made = JaxTensor(array, self.dtype, origins & ~GRADIENT | self.gradient, self.layout)
        made.bounds = self.bounds
        return lift(made)


class Given(NamedTuple):
    """A tensor that a block was given, and gives back."""

    number: int


class Run:
    """A run that goes on, and then is over.

    Attributes:
      head: the form of the call.
      reads: what the code looked at, with its form.
      program: what it computed.
      outs: for each leaf of what it gave a ``Result``, ``Given``, or what is no tensor.
      why: what keeps others from being shown to be the same.
    """

    def __init__(self, block: torch.nn.Module, trace: Any, head: Head):
        self.trace, self.mode = trace, mode_of(trace)
        self.forms = Forms(block)
        self.reads, self.program = Reads(self.forms), Program(self.forms.arrays)
        self.outs: list[Any] = []
        self.structure: Any = None
        self.why: str | None = None
        self.head = head(self.forms)
        self.before = self.surroundings()

    def surroundings(self) -> tuple[list[Any], list[Any]]:
        """(What has to be the same objects after the run as before, what has to be equal.)"""
        trace, mode = self.trace, self.mode
        own: list[Any] = [vars(m) for m in self.forms.modules.values()]
        own += [x.get(k) or {} for x in own for k in ("_parameters", "_buffers", "_modules")]
        lists = [trace.conditions or (), trace.unknown, trace.fallback.missing]
        lists += [
            trace.size_conditions,
            trace.generators.states,
            mode.detached.views,
            mode.picked.found,
        ]
        counts = [*map(len, lists)]
        numbers: Any = np.random.get_state()
        drawn = random.getstate(), numbers[1].tobytes(), numbers[2]
        return [x for d in own for pair in d.items() for x in pair], [mode.guard, *counts, *drawn]

    def record(self, head: Head, forward: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Runs forward."""
        trace, expanded = self.trace, self.mode.expanded.known
        drawn, shared = trace.keys.draws, {*expanded}
        trace.programs.append(self.program)
        try:
            with watching(self.reads):
                out = [forward(*args, **kwargs)]
        finally:
            trace.programs.remove(self.program)
        added = [k for k in expanded if k not in shared]
        with aside():
            self.why = self.refused(head, out[0], trace.keys.draws - drawn, added)
            given = out[0] if self.why else self.finished(out, added)
            self.forms.release()
        return given

    def refused(self, head: Head, out: Any, drawn: int, expanded: list[int]) -> str | None:
        """Why others cannot be shown to run alike; None where they may."""
        if why := self.reads.why or self.program.why:
            return why
        (held, counted), (now, count) = self.before, self.surroundings()
        alike = len(held) == len(now) and all(a is b for a, b in zip(held, now))
        found = self.same(self.forms.block, head)
        if not alike or counted != count or found is None:
            return "forward changes what it finds"
        if [*found.arrays] != [*self.forms.arrays]:
            return "forward writes to a tensor"
        if drawn != len(self.program.keys):
            return "it draws random numbers for code that JAX traces on its own"
        leaves, self.structure = flatten(out)
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        if any(id(x) in expanded for x in tensors) or len({*map(id, tensors)}) < len(tensors):
            return "results share memory"
        try:
            self.outs = [self.result(x) for x in leaves]
        except Unprovable as reason:
            return str(reason)
        return None

    def result(self, leaf: Any) -> Any:
        """What has to be known of a leaf to make it again."""
        if not isinstance(leaf, torch.Tensor):
            if type(leaf) not in SETTINGS:
                raise Unprovable(f"it gives a {type(leaf).__name__}")
            return leaf
        for number, x in enumerate(self.forms.given):
            if x is leaf:
                return Given(number)
        held: Any = inner(leaf)
        if type(held) is not JaxTensor or id(held.array) not in self.program.sources:
            raise Unprovable("it gives a constant, or what it was given as another tensor")
        if not (whole_view(leaf, self.program) if leaf._is_view() else alone(leaf)):
            raise Unprovable("memory of a result is known elsewhere")
        plain = held.before_hooks is None and held.required is None and held.holder is None
        if not plain or held.parts or vars(leaf):
            raise Unprovable("there is more to a result than its values")
        layout = None if held.is_contiguous() else (held.stride(), held.storage_offset())
        sources = frozenset(self.forms.arrays[x] for x in self.program.sources[id(held.array)])
        kind = held.dtype, layout, held.origins & GRADIENT, held.bounds
        return Result(id(held.array), sources, *kind)

    def finished(self, out: list[Any], expanded: list[int]) -> Any:
        """What the run gives, with tensors such as other blocks give; then nobody holds a tensor of
        the run any more, if it left none anywhere. Else they are the run's own.
        """
        leaves = flatten(out.pop())[0]
        fresh = [
            made.tensor(inner(x).array, inner(x).origins) if isinstance(made, Result) else x
            for made, x in zip(self.outs, leaves)
        ]
        own = {i: weakref.ref(leaves[i]) for i, x in enumerate(self.outs) if isinstance(x, Result)}
        bases = {i: leaves[i]._base for i in own if leaves[i]._is_view()}
        shared = self.mode.expanded.known
        views = {k: weakref.ref(shared.pop(k)) for k in expanded}
        leaves.clear()
        known = {id(inner(x)) for x in bases.values()}
        made = (ref() for ref in self.program.made)
        kept = any(x is not None and id(x) not in known for x in made)
        if kept or any(ref() is not None for ref in own.values()):
            self.why = "forward leaves a tensor somewhere"
            for i, base in bases.items():
                fresh[i] = base.view(fresh[i].shape)
            for i, ref in own.items():
                fresh[i] = fresh[i] if (was := ref()) is None else was
            shared |= {k: x for k, ref in views.items() if (x := ref()) is not None}
        return self.structure.unflatten(fresh)

    def same(self, block: torch.nn.Module, head: Head) -> Forms | None:
        """What a block finds now, if it is shown to be the same as in this run."""
        forms = Forms(block)
        try:
            if forms.modules.keys() != self.forms.modules.keys() or head(forms) != self.head:
                return None
            alike = all(form(forms, read) == found for read, found in self.reads.found.values())
        except Unprovable:
            return None
        return forms if alike else None

    def again(self, forms: Forms) -> Any:
        """What another block gives, which finds the same."""
        trace, program = self.trace, self.program
        tensors = [inner(x) for x in forms.tensors]
        given = {forms.arrays[id(x.array)]: x for x in tensors}
        arrays = [given[i].array for i in range(len(given))]
        keys = [trace.keys.draw("a block") for _ in program.keys]
        results = [x for x in self.outs if isinstance(x, Result)]
        made = program.again([x.array for x in results], arrays, keys)
        trace.unread.difference_update(id(arrays[i]) for i in program.read)
        fresh = []
        for result, array in zip(results, made):
            origins = 0
            for i in result.sources:
                origins |= given[i].origins
            fresh.append(result.tensor(array, origins))
        for reads in OPEN:
            for read, _ in self.reads.found.values():
                reads.passed(forms, read)
        for outer in trace.programs:
            outer.keys += keys
            outer.add(Step(program.inlined, [arrays, keys], made), [*map(inner, fresh)])
        rest = iter(fresh)
        leaf = lambda x: forms.given[x.number] if isinstance(x, Given) else x
        return self.structure.unflatten(
            [next(rest) if isinstance(x, Result) else leaf(x) for x in self.outs]
        )


def mode_of(trace: Any) -> Any:
    """The function mode of the trace."""
    return next(m for m in reversed(private.function_modes()) if hasattr(m, "trace"))


def alone(tensor: torch.Tensor) -> bool:
    """Whether nobody else knows the memory of a tensor that is no view."""
    return uses_of_memory(tensor) == LONE[0]


def whole_view(tensor: torch.Tensor, program: Program) -> bool:
    """Whether a view shows all of a tensor that the program made, which nobody else holds."""
    base: Any = tensor._base
    made = id(inner(base).array) in program.sources
    if not (
        made and base.is_contiguous() and tensor.is_contiguous() and base.numel() == tensor.numel()
    ):
        return False
    del base
    return uses_of_base(tensor) == LONE[1]


def uses_of_memory(tensor: torch.Tensor) -> int:
    """By tensors, and by who asks."""
    return private.storage_uses(tensor.untyped_storage()._cdata)


def uses_of_base(view: torch.Tensor) -> int:
    """By the view, by Python, and by who asks."""
    base = view._base
    return sys.getrefcount(base)


LONE = uses_of_memory(torch.ones(1)), uses_of_base(torch.ones(1).view(1))
