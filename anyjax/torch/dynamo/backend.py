"""The backend that torch calls with the graphs of Dynamo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from anyjax.errors import DataDependent, WrongArguments
from anyjax.torch.core import private
from anyjax.torch.core.precision import precision_of
from anyjax.torch.dynamo.dynamic import DynamicProgram, Merged, buckets_of
from anyjax.torch.dynamo.interpreter import join_linear
from anyjax.torch.dynamo.layout import Symbols
from anyjax.torch.dynamo.program import Program, Settings, Value, sharing
from anyjax.torch.engine import compare_cache
from anyjax.torch.engine.callback import check_on_missing
from anyjax.torch.lowering import composites
from anyjax.torch.sizes.counted import Unserved

DEFAULTS: dict[str, Any] = {
    "precision": "torch",
    "on_missing": "error",
    "max_programs": 64,
    "buckets": True,
}

private.skip_package()(
    "jax"
)  # what a Model gives to code around a graph: Dynamo cannot follow arrays of JAX


def compile_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Value],
    *,
    mode: str | None = None,
    options: Mapping[str, str | int | bool] | None = None,
) -> Callable[..., Sequence[Value]]:
    """Compiles a graph of Dynamo with XLA, for ``torch.compile(backend="anyjax")``.

    AOTAutograd makes the graph functional and derives the backward pass; forward and backward
    become a program each, by the lowerings of ``anyjax.from_torch``. Weights stay torch's: programs
    read and write torch's memory on the CPU, without copies where it is aligned, and have 64-bit
    types whether x64 is on or off. Random operators draw from a key that every call takes from
    torch's generator, so that ``torch.manual_seed`` repeats them; the numbers are JAX's. An index
    out of range is clipped, as in JAX, where torch raises.

    Where sizes are dynamic, Dynamo hands over one graph for all of them. They are rounded up to
    buckets, two in each octave, and a program serves all sizes of a bucket: inputs are padded, and
    operators that look at more than one element leave out what is padded, so that values are those
    of the sizes themselves. A graph that has an operator without a rule for this gets a program for
    each size. ``torch._dynamo.utils.counters["anyjax"]`` counts "graphs", "programs", of which each
    beyond the first of a graph is a recompilation, and such operators: "no buckets: aten.name".

    Args:
      graph: what Dynamo captured.
      example_inputs: its inputs, as far as they are known.
      mode: None or "default", there is no other one.
      options: ``precision`` and ``on_missing`` as ``anyjax.from_torch`` has them; ``max_programs``,
        how many programs of one graph are kept for other sizes, 64; ``buckets``, True.

    Returns:
      A function of the graph's inputs.

    Raises:
      WrongArguments: there is no such mode or option.

    Example:
      >>> model = torch.nn.Linear(3, 2)
      >>> compiled = torch.compile(model, backend=compile_backend)  # or "anyjax", once installed
      >>> compiled(torch.ones(5, 3)).sum().backward()
      >>> model.weight.grad.shape
      torch.Size([2, 3])
    """
    settings = settings_of(mode, options or {})
    compiler = partial(compile_graph, settings=settings, merged=Merged())
    differentiate = private.aot_autograd()(fw_compiler=compiler, partition_fn=private.partition())
    composites.exist()
    outer = composites.COMPILES.set(True)
    try:
        return differentiate(graph, example_inputs)
    finally:
        composites.COMPILES.reset(outer)


def settings_of(
    mode: str | None = None, options: Mapping[str, str | int] = MappingProxyType({})
) -> Settings:
    """Returns what a mode and options stand for."""
    unknown = [*(set(options) - set(DEFAULTS)), *([mode] if mode not in (None, "default") else [])]
    if unknown:
        raise WrongArguments(
            f'torch.compile(backend="anyjax") has no {", ".join(map(repr, unknown))}',
            why=f"its options are {', '.join(DEFAULTS)}, and there are no modes",
            do='leave it out, or pass options={"precision": "default"}',
        )
    precision, on_missing, max_programs, buckets = (DEFAULTS | dict(options)).values()
    check_on_missing(on_missing)
    compare_cache.load()
    return Settings(precision_of(precision), on_missing == "callback", max_programs, bool(buckets))


def compile_graph(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Value],
    settings: Settings,
    merged: Merged | None = None,
) -> Callable[[list[Value]], Sequence[Value]]:
    """Returns a function of a list of inputs for a graph of AOTAutograd, which empties the list.

    Args:
      module: the graph.
      example_inputs: its inputs.
      settings: those of the backend.
      merged: factors of dimensions; the backward graph reads those of the forward one.
    """
    join_linear(module.graph)
    output = module.graph.output_node()
    (results,) = output.args
    count, memory = len(results), sharing(results)
    output.args = ([*results, *memory],)
    private.dynamo_counters()["anyjax"]["graphs"] += 1
    programs = Programs(module, settings, Merged() if merged is None else merged)
    return private.boxed()(lambda *args: programs(args)[:count])


class Programs:
    """The programs of a graph: one, or where sizes are dynamic one for each bucket of them; one
    for each size, where an operator cannot be served for a bucket.
    """

    def __init__(self, module: torch.fx.GraphModule, settings: Settings, merged: Merged):
        self.module, self.settings, self.merged = module, settings, merged
        self.metas = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        self.symbols = Symbols(self.metas)
        self.is_dynamic = any(isinstance(n, torch.SymInt) for x in self.metas for n in _size(x))
        self.has_buckets = settings.buckets and self.is_dynamic
        self.equal: dict[Any, Any] = {}  # symbols that stand for the same as others
        self.programs: dict[tuple, Program] = {}  # the last one is the one used last

    def __call__(self, args: Sequence[Value]) -> Sequence[Value]:
        """Returns the results of the graph."""
        if not self.has_buckets:
            return self._exact(args)
        sizes, state = self.symbols.sizes(args), torch.get_rng_state()
        if any(sizes[x] != sizes[y] for x, y in self.equal.items()):
            self.equal = {x: y for x, y in self.equal.items() if sizes[x] == sizes[y]}
            self.programs.clear()
        key, equal = buckets_of(sizes), self.equal
        make = lambda: DynamicProgram(self.module, args, self.settings, key, equal, self.merged)
        is_new = tuple(key.items()) not in self.programs
        try:
            return self._program(tuple(key.items()), make)(args)
        except (DataDependent, Unserved) as reason:
            self.programs.clear()
            counters = private.dynamo_counters()["anyjax"]
            counters["programs"] -= is_new
            torch.set_rng_state(state)
            pairs = alike(sizes)
            if pairs != self.equal:  # an operator may need them to be
                self.equal = pairs
                return self(args)
            self.has_buckets = False
            counters[f"no buckets: {str(reason).splitlines()[0]}"] += 1
            return self._exact(args)

    def _exact(self, args: Sequence[Value]) -> Sequence[Value]:
        """Runs a program that is made for these sizes."""
        key = tuple(map(_size, args)) if self.is_dynamic else ()
        return self._program(key, lambda: Program(self.module, args, self.settings))(args)

    def _program(self, key: tuple, make: Callable[[], Program]) -> Program:
        program = self.programs.pop(key, None)
        if program is None:
            private.dynamo_counters()["anyjax"]["programs"] += 1
            program = make()
        self.programs[key] = program
        if len(self.programs) > self.settings.max_programs:
            del self.programs[next(iter(self.programs))]
        return program


def alike(sizes: Mapping[Any, int]) -> dict[Any, Any]:
    """Returns symbols that have the size of an earlier one, with that.

    Example:
      >>> alike({"batch": 9, "length": 11, "labels": 9})
      {'labels': 'batch'}
    """
    firsts: dict[int, Any] = {}
    pairs = {x: firsts.setdefault(sizes[x], x) for x in sizes}
    return {x: y for x, y in pairs.items() if x != y}


def _size(value: Value) -> tuple:
    """Returns what a program is made for: sizes and strides of a tensor, any other value itself."""
    return (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
