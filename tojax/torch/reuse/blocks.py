"""A block of a model runs once in a trace; siblings of which that can be shown do not run.

    for layer in self.layers:
        x = layer(x, mask)      # the program of the first one, with the arrays of the others

The first run of a block is as any other. Meanwhile it is noted what its code looks at (reads.py,
forms.py) and to which lowerings it comes (program.py). Where a sibling would find the same, it
would come to the same lowerings: they are inlined, with its own arrays and random keys. Other
siblings run themselves, and so do blocks that write to tensors, attributes or containers, that
leave a tensor anywhere or ask for values (``Run.refused``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import torch

from tojax.torch.core import current, private
from tojax.torch.reuse.forms import Forms, Unprovable
from tojax.torch.reuse.reads import aside, may_watch
from tojax.torch.reuse.run import Head, Run, mode_of

FEW = 5  # siblings, from which on it takes less time to look for equal ones
KINDS, FAILURES = 8, 2  # of siblings: runs that are noted, at most, and those in vain


WATCHERS: list[list[Group]] = []


class Group:
    """Siblings, and those of their runs that others are compared with.

    Attributes:
      name: the class of the siblings.
      noted, shared: how many runs were noted, and how many did without one.
      reasons: why a run could not be noted.
    """

    def __init__(self, members: list[torch.nn.Module]):
        self.name = type(members[0]).__name__
        self.runs: list[Run] = []
        self.noted = self.shared = 0
        self.reasons: list[str] = []
        for watcher in WATCHERS:
            watcher.append(self)

    @property
    def open(self) -> bool:
        """Whether further runs are noted."""
        kinds = KINDS if self.shared else FEW - 1
        return len(self.runs) < kinds and len(self.reasons) < FAILURES

    def close(self, run: Run) -> None:
        """A run is over."""
        self.noted += 1
        self.reasons.append(run.why) if run.why else self.runs.append(run)


@contextlib.contextmanager
def watching() -> Iterator[list[Group]]:
    """The siblings of traces in here, which tell what they shared."""
    seen: list[Group] = []
    WATCHERS.append(seen)
    try:
        yield seen
    finally:
        WATCHERS.remove(seen)


def siblings(module: torch.nn.Module) -> list[list[torch.nn.Module]]:
    """Modules beside each other that have submodules, and weights of the same shapes."""
    found: dict[Hashable, list[torch.nn.Module]] = {}
    for parent in module.modules():
        children = [m for m in parent.children() if m._modules]
        if len(children) >= FEW and not isinstance(parent, torch.jit.ScriptModule):
            for child in children:
                found.setdefault((id(parent), _signature(child)), []).append(child)
    return [group for group in found.values() if len(group) >= FEW]


def _signature(module: torch.nn.Module) -> Hashable:
    tensors = (*module.named_parameters(), *module.named_buffers())
    return type(module), *((k, t.shape, t.dtype, t.requires_grad) for k, t in tensors)


@contextlib.contextmanager
def shared(groups: list[list[torch.nn.Module]], trace: Any) -> Iterator[None]:
    """In here, siblings that are shown to be equal run once, if JAX compiles the program."""
    compiled = isinstance(jnp.zeros(()), jax.core.Tracer)
    if not compiled or trace.tape is not None or not trace.path.first:
        yield
        return
    placed = []
    found = [Group(members) for members in groups]
    try:
        for group, members in zip(found, groups):
            for module in members:
                placed.append((vars(module), vars(module).get("forward")))
                vars(module)["forward"] = Entrance(module, group, trace)
        yield
    finally:
        for held, before in placed:
            held.pop("forward", None)
            held |= {} if before is None else {"forward": before}
        for group in found:
            for run in group.runs:
                run.program.over()
            group.runs.clear()


class Entrance:
    """Stands in the place of the forward of a block."""

    def __init__(self, block: torch.nn.Module, group: Group, trace: Any):
        self.block, self.group, self.trace = block, group, trace
        self.own = block.forward
        functools.update_wrapper(self, self.own)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.ready():
            return self.own(*args, **kwargs)
        head = lambda forms: self.head(forms, args, kwargs)
        with aside():
            run, forms = self.same(head)
            if run is None and self.group.open:
                run = self.noted(head, (*args, *kwargs.values()))
        if forms is not None:
            self.group.shared += 1
            return run.again(forms)
        if run is None:
            return self.own(*args, **kwargs)
        out = run.record(head, self.own, args, kwargs)
        self.group.close(run)
        return out

    def same(self, head: Head) -> Any:
        """(A run that this one would be like, what the block finds); None and None without one."""
        for run in self.group.runs:
            if (forms := run.same(self.block, head)) is not None:
                return run, forms
        return None, None

    def noted(self, head: Head, given: tuple) -> Any:
        """A run that is to be noted; None where others could not be the same."""
        try:
            if kept := next(filter(keeps_state, given), None):
                raise Unprovable(f"it is given a {type(kept).__name__}")
            return Run(self.block, self.trace, head)
        except Unprovable as reason:
            self.group.reasons.append(str(reason))
            return None

    def ready(self) -> bool:
        """Whether runs can be compared here: not while a condition or a write is on its way."""
        trace = self.trace
        if current.trace() is not trace or not may_watch() or private.transforms():
            return False
        waits = trace.writing or trace.unknown or mode_of(trace).guard
        stopped = trace.path is not None and trace.path.stopped is not None
        return not waits and not stopped

    def head(self, forms: Forms, args: tuple, kwargs: dict[str, Any]) -> Hashable:
        """The form of the call: arguments, code, and what torch and the trace are told to do."""
        trace, rng = self.trace, self.trace.keys.rng
        modes = [id(m) for m in private.function_modes()]
        casts = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        exact = torch.are_deterministic_algorithms_enabled()
        told = torch.is_grad_enabled(), torch.get_default_dtype(), exact, *casts
        inside = trace.path is None, trace.conditions is None, None if rng is None else rng.dtype
        return (
            *modes, *told, *inside, forms(args), forms(kwargs), forms(self.own), _code(forms)
        )  # fmt: skip


def keeps_state(value: Any) -> bool:
    """Whether this is an object that a block may write to, as to a cache."""
    return not isinstance(value, (torch.Tensor, dict, tuple, list)) and hasattr(value, "__dict__")


def _code(forms: Forms) -> Hashable:
    """The classes of the block, and what they have."""
    kinds = {name: type(m) for name, m in forms.modules.items()}
    bases = dict.fromkeys(c for kind in kinds.values() for c in kind.__mro__)
    del bases[torch.nn.Module], bases[object]
    if any("__getattribute__" in vars(c) for c in bases):
        raise Unprovable("what it looks at cannot be followed")
    return forms(kinds), [(c, *map(forms.itself, vars(c).values())) for c in bases]
