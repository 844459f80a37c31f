"""Entries of torch's operator database as functions of tensors alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

SAMPLES = 6
WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
WIDE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}


class TorchFails(Exception):
    """torch itself cannot do what is asked for."""


def name_of(entry) -> str:
    """An entry's name with its variant."""
    return entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


def samples(entry, dtype, count=SAMPLES, grad=False):
    """Up to so many samples, spread over what the entry offers."""
    found = list(entry.sample_inputs("cpu", dtype, requires_grad=grad))
    step = max(1, (len(found) - 1) / max(count - 1, 1))
    return [found[round(i * step)] for i in range(min(count, len(found)))]


@dataclass
class Case:
    """One sample: ``function`` of its ``tensors``, and the same function in float64."""

    function: Any
    tensors: list[torch.Tensor]
    wide: Any

    @property
    def wanted(self) -> list[int]:
        """Places of the tensors that a gradient is asked for."""
        return [i for i, t in enumerate(self.tensors) if t.requires_grad]

    @property
    def size(self) -> int:
        return sum(t.numel() for t in self.tensors)

    def fresh(self, requires_grad=False) -> list[torch.Tensor]:
        """Copies of the tensors, so that no call sees another's writes."""
        return [
            t.detach().clone().requires_grad_(requires_grad and t.requires_grad)
            for t in self.tensors
        ]


def case_of(entry, sample, derivative=False) -> Case:
    """The sample's tensors, and everything else closed over.

    For a derivative the input is first made what the operator takes it for (Hermitian, triangular),
    as torch's own checks do: formulas differ in what they make of the part that is not read.
    """
    call = partial(entry.gradcheck_wrapper, entry.op) if derivative else entry.op
    leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def function(*tensors, leaves=leaves):
        full = list(leaves)
        for place, tensor in zip(places, tensors):
            full[place] = tensor
        first, args, kwargs = tree_unflatten(full, structure)
        out = call(first, *args, **kwargs)
        return out if sample.output_process_fn_grad is None else sample.output_process_fn_grad(out)

    widened = [WIDE.get(x, x) if isinstance(x, torch.dtype) else x for x in leaves]
    return Case(function, [leaves[i] for i in places], lambda *ts: function(*ts, leaves=widened))


def widen(tensors) -> list[torch.Tensor]:
    """The tensors in float64 (complex128)."""
    return [t.to(WIDE.get(t.dtype, t.dtype)) for t in tensors]


def rounded(tensors, seed: int = 0) -> list[torch.Tensor]:
    """The tensors in float64, moved by up to one rounding of their own dtype."""
    draw = torch.Generator().manual_seed(seed)
    moved = []
    for t, w in zip(tensors, widen(tensors)):
        if t.dtype in WIDE or t.dtype.is_floating_point or t.dtype.is_complex:
            noise = torch.rand(t.shape, generator=draw, dtype=torch.float64) * 2 - 1
            w = w * (1 + torch.finfo(t.dtype).eps * noise)
        moved.append(w)
    return moved


# Several draws: one may move a result that is a single number by nothing.
EXACT = (widen, *(partial(rounded, seed=seed) for seed in range(4)))


class Operators(TorchDispatchMode):
    """Notes which operators run."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.seen.add(op)
        return op(*args, **(kwargs or {}))


def undefined(case: Case) -> bool:
    """Whether values are drawn or memory that nobody wrote: then shapes and dtypes can agree."""
    given = case.fresh()
    with torch.no_grad(), Operators() as mode:
        attempt(case.function, *given)
    if any(torch.Tag.nondeterministic_seeded in op.tags for op in mode.seen):
        return True
    names = {op._schema.name.split("::")[1] for op in mode.seen}
    return bool(names) and all(n.startswith(("empty", "new_empty")) for n in names)


def attempt(function, *args):
    """torch's result; TorchFails where torch itself cannot."""
    try:
        return function(*args)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise TorchFails(f"{type(error).__name__}: {lines[0]}"[:150]) from error
