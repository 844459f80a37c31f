"""Operators as compiled programs: one for each operator, its numbers and switches, and the shapes,
dtypes and layouts of its tensors.

What the table's lowering, or torch's decomposition, does with these is traced once; dtypes and
layouts of the results are kept beside the program.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import torch

from anyjax.dtypes import x64
from anyjax.errors import DataDependent
from anyjax.torch.core import current_trace
from anyjax.torch.core.call import Call
from anyjax.torch.core.pytrees import flatten
from anyjax.torch.eager import kernels, random_keys
from anyjax.torch.eager.run import EagerRun, collected
from anyjax.torch.eager.tensor import (
    KIND,
    EagerTensor,
    Memory,
    Spec,
    in_memory,
    made_as,
    of_layout,
    refuse_double,
    tensor_of,
)
from anyjax.torch.lowering.fallback import fallback
from anyjax.typing import PyTree

LARGEST = 512  # programs of an operator, shapes and numbers; what comes later is not compiled
DROPPED = {"device", "pin_memory", "generator", "non_blocking", "layout"}

aten = torch.ops.aten

# Operators of optimizers, whose factors are other numbers in each step: these are arguments.
VARYING = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}
VARYING |= {aten.addcmul.default, aten.addcdiv.default, aten.lerp.Scalar}
PROGRAMS: dict[tuple, Program] = {}
COUNTS: Counter[Call] = Counter()
HOLDS: list[list[jax.Array]] = []  # the conditions of the operators that are being traced


def run(call: Call, args: tuple, kwargs: dict[str, PyTree]) -> Any:
    """Returns the results of an operator that writes nothing."""
    if call.row is None and (kind := KIND.get()) is not None and kind.overridden():
        return compute(call, args, kwargs)  # others, which a program for everybody has not
    tensors: list[EagerTensor] = []
    floats: list[float] = []
    key = _key(call, args, kwargs, tensors, floats)
    varies = bool(floats) and call.op in VARYING and not x64()
    varies = varies and all(x.spec.dtype is torch.float32 for x in tensors)
    if floats and not varies:
        key = *key, *map(repr, floats)  # NaN is like itself, -0.0 not like 0.0
        floats = []
    program = PROGRAMS.get(key)
    if program is None:
        compiled = COUNTS[call] < LARGEST
        program = Program(call, args, kwargs, tensors, compiled, varies)
        if compiled:
            COUNTS[call] += 1
            PROGRAMS[key] = program
    return program(args, kwargs, tensors, floats)


def _key(
    call: Call, args: tuple, kwargs: dict, tensors: list[EagerTensor], floats: list[float]
) -> tuple:
    key: list[Any] = [call, x64(), torch.get_default_dtype()]
    key.append(torch.get_float32_matmul_precision())
    for value in args:
        key.append(_part(value, tensors, floats))
    for name, value in kwargs.items():
        if name not in DROPPED:
            key.append((name, _part(value, tensors, floats)))
    return tuple(key)


def _part(value: PyTree, tensors: list[EagerTensor], floats: list[float]) -> Any:
    """Returns what a program depends on of an argument; collects tensors and numbers."""
    kind = type(value)
    if issubclass(kind, EagerTensor):
        tensors.append(value)
        return value.spec.template
    if kind is float:
        floats.append(value)
        return float
    if kind is complex:
        return kind, repr(value)
    if kind is list or kind is tuple:
        return tuple([_part(x, tensors, floats) for x in value])
    return kind, value


class Program:
    """An operator for all tensors of the same specs.

    Attributes:
      results: specs of the tensors in the result, other values as they are, and its structure.
      written: which of the tensors are written to although the schema does not say so.
      draws: whether random numbers are drawn.
      compiled: whether there is a program; not where a shape depends on values.
    """

    def __init__(
        self, call: Call, args: tuple, kwargs: dict, tensors: list, compiled: bool, varies: bool
    ):
        self.call, self.compiled = call, compiled
        self.specs = [x.spec.template for x in tensors]
        leaves, self.structure = flatten((args, kwargs))
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.leaves = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.varying = [i for i, x in enumerate(leaves) if varies and type(x) is float]
        self.draws = call.random and not call.inert(call.bind(args, kwargs)[0])
        self.results: tuple[list[Any], Any] = ([], None)
        self.written: list[int] = []
        self.program = jax.jit(self._traced)

    def __call__(
        self,
        args: tuple,
        kwargs: dict[str, PyTree],
        tensors: list[EagerTensor],
        floats: list[float],
    ) -> Any:
        arrays = [x.memory.array for x in tensors]
        seed = None
        if self.draws:
            values = (*args, *kwargs.values())
            generators = (x for x in values if isinstance(x, torch.Generator))
            seed = random_keys.draw(self.call.op, next(generators, None))
        traced = any(isinstance(x, jax.core.Tracer) for x in arrays)
        if traced and seed is not None:
            random_keys.check_fresh(self.call.op, seed)
        if traced or not self.compiled:
            return compute(self.call, args, kwargs, seed)
        try:
            starts = [x.spec.starts for x in tensors]
            out, written, holds = self.program(arrays, starts, floats, seed)
        except (DataDependent, random_keys.Forbidden):
            self.compiled = False
            return compute(self.call, args, kwargs, seed)
        if seed is not None and isinstance(out[0], jax.core.Tracer):
            random_keys.check_fresh(self.call.op, seed)
        if holds and not all(holds):
            return compute(self.call, args, kwargs, seed)  # raises what a value is wrong for
        for i, array in zip(self.written, written):
            tensors[i].array = array
        leaves, structure = self.results
        computed = iter(out)
        return structure.unflatten(
            [tensor_of(x, next(computed)) if type(x) is Spec else x for x in leaves]
        )

    def _traced(
        self, arrays: list[PyTree], starts: list[PyTree], floats: list[PyTree], seed: PyTree
    ) -> tuple:
        """Traces the operator; notes what the results are."""
        tensors = [in_memory(spec, Memory(x)) for spec, x in zip(self.specs, arrays)]
        for tensor, begins in zip(tensors, starts):
            if begins:
                tensor.spec = replace(tensor.spec, starts=begins)
        leaves = [*self.leaves]
        for place, number in zip(self.varying, floats):
            leaves[place] = number
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        args, kwargs = self.structure.unflatten(leaves)
        with random_keys.forbidden(), made_as(EagerTensor), collected() as holds:
            out = compute(self.call, args, kwargs, seed)
        outs, structure = flatten(out)
        if not all(isinstance(x, (EagerTensor, type(None))) for x in outs):
            raise random_keys.Forbidden  # a number of Python's, which depends on values
        specs = [x if x is None else _own(x) for x in outs]
        self.results = specs, structure
        self.written = [i for i, x in enumerate(tensors) if x.memory.array is not arrays[i]]
        written = [tensors[i].array for i in self.written]
        return [x.array for x in outs if x is not None], written, holds


def _own(tensor: EagerTensor) -> Spec:
    if tensor.spec.owner is None:
        return tensor.spec
    return of_layout(tensor.shape, tensor.dtype, (tensor.stride(), 0))


def compute(call: Call, args: tuple, kwargs: dict[str, PyTree], seed: PyTree = None) -> Any:
    """Returns the results of an operator that writes nothing, by its lowering or without one."""
    run = EagerRun(seed)
    if (kernel := kernels.SPECIAL.get(call.op)) is not None:
        return run.above(kernel, args, kwargs)
    if call.row is None:
        return fallback(run, call.op, args, kwargs)
    if call.dtype_at is not None and not call.factory:
        at = call.dtype_at
        refuse_double(args[at] if len(args) > at else kwargs.get("dtype"))
    with current_trace.entered(run), run.precision.around(), jax.numpy_rank_promotion("allow"):
        return run.lower(call, args, kwargs)
