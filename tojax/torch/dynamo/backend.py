"""The backend that torch calls with the graphs of Dynamo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from tojax.errors import WrongArguments
from tojax.torch.core import private
from tojax.torch.core.precision import precision_of
from tojax.torch.dynamo.interpreter import join_linear
from tojax.torch.dynamo.program import Program, Settings, Value
from tojax.torch.engine.callback import check_on_missing

DEFAULTS: dict[str, Any] = {"precision": "torch", "on_missing": "error", "max_programs": 64}


def compile_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Value],
    *,
    mode: str | None = None,
    options: Mapping[str, str | int] | None = None,
) -> Callable[..., Sequence[Value]]:
    """Compiles a graph of Dynamo with XLA; torch calls this for ``torch.compile(backend="tojax")``.

    AOTAutograd makes the graph functional and derives the backward pass; forward and backward
    become a program each, by the lowerings of ``tojax.from_torch``. Weights stay torch's: programs
    read and write torch's memory on the CPU, without copies where it is aligned, and have 64-bit
    types whether x64 is on or off. Random operators draw from a key that every call takes from
    torch's generator, so that ``torch.manual_seed`` repeats them; the numbers are JAX's. An index
    out of range is clipped, as in JAX, where torch raises.

    Where sizes are dynamic, Dynamo hands over one graph for all of them, and XLA compiles it once
    for each combination of sizes that comes: nothing is padded, since a sum or a softmax over
    padding would be another number. Give few lengths (buckets) where there may be many.
    ``torch._dynamo.utils.counters["tojax"]`` counts "graphs" and "programs"; a second program of a
    graph is a recompilation.

    Args:
      graph: what Dynamo captured.
      example_inputs: its inputs, as far as they are known.
      mode: None or "default", there is no other one.
      options: ``precision`` and ``on_missing`` as ``tojax.from_torch`` has them; ``max_programs``,
        how many programs of one graph are kept for other sizes, 64.

    Returns:
      A function of the graph's inputs.

    Raises:
      WrongArguments: there is no such mode or option.

    Example:
      >>> model = torch.nn.Linear(3, 2)
      >>> compiled = torch.compile(model, backend=compile_backend)  # or "tojax", once installed
      >>> compiled(torch.ones(5, 3)).sum().backward()
      >>> model.weight.grad.shape
      torch.Size([2, 3])
    """
    settings = settings_of(mode, options or {})
    compiler = partial(compile_graph, settings=settings)
    differentiate = private.aot_autograd()(fw_compiler=compiler, partition_fn=private.partition())
    return differentiate(graph, example_inputs)


def settings_of(
    mode: str | None = None, options: Mapping[str, str | int] = MappingProxyType({})
) -> Settings:
    """Returns what a mode and options stand for."""
    unknown = [*(set(options) - set(DEFAULTS)), *([mode] if mode not in (None, "default") else [])]
    if unknown:
        raise WrongArguments(
            f'torch.compile(backend="tojax") has no {", ".join(map(repr, unknown))}',
            why=f"its options are {', '.join(DEFAULTS)}, and there are no modes",
            do='leave it out, or pass options={"precision": "default"}',
        )
    precision, on_missing, max_programs = (DEFAULTS | dict(options)).values()
    check_on_missing(on_missing)
    return Settings(precision_of(precision), on_missing == "callback", max_programs)


def compile_graph(
    module: torch.fx.GraphModule, example_inputs: Sequence[Value], settings: Settings
) -> Callable[[list[Value]], Sequence[Value]]:
    """Returns a function of a list of inputs for a graph of AOTAutograd, which empties the list."""
    join_linear(module.graph)
    counters = private.dynamo_counters()["tojax"]
    counters["graphs"] += 1
    metas = (node.meta["val"] for node in module.graph.find_nodes(op="placeholder"))
    is_dynamic = any(isinstance(n, torch.SymInt) for x in metas for n in _size(x))
    programs: dict[tuple, Program] = {}

    def compiled(*args: Value) -> Sequence[Value]:
        key = tuple(map(_size, args)) if is_dynamic else ()
        program = programs.pop(key, None)
        if program is None:
            counters["programs"] += 1
            program = Program(module, args, settings)
        programs[key] = program  # the last one is the one used last
        if len(programs) > settings.max_programs:
            del programs[next(iter(programs))]
        return program(args)

    return private.boxed()(compiled)


def _size(value: Value) -> tuple:
    """Returns what a program is made for: sizes and strides of a tensor, any other value itself."""
    return (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
