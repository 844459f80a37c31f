"""Programs of ``torch.export`` as functions of arrays, and as StableHLO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.export
import torch
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from anyjax.errors import Unsupported
from anyjax.torch.core import private
from anyjax.torch.jax_function import from_jax
from anyjax.torch.source import from_torch
from anyjax.torchax.ops import mappings
from anyjax.torchax.tensor import Environment, default_env
from anyjax.typing import PyTree

OPERATORS = (private.OpOverload, private.OpOverloadPacket)


class _Interpreted(torch.fx.Interpreter):
    """Runs a graph, with functions that took the place of operators."""

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        operator = default_env().find(target)
        if operator is None or not operator.is_jax_function:
            return super().call_function(target, args, kwargs)
        return from_jax(operator.func)(*args, **kwargs)


class Serving(torch.nn.Module):
    """A module inside of which functions of the environment serve torch's, also in traces."""

    def __init__(self, module: torch.nn.Module, env: Environment):
        super().__init__()
        self.module, self.mode = module, _Serves(env)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.mode:
            return self.module(*args, **kwargs)


class _Serves(TorchFunctionMode):
    """Sees functions before the trace takes them apart."""

    def __init__(self, env: Environment):
        super().__init__()
        self.find = env.find

    def __torch_function__(self, func, types, args=(), kwargs=None):
        operator = self.find(func)
        if operator is None or not operator.is_jax_function:
            return func(*args, **kwargs or {})
        return from_jax(operator.func)(*args, **kwargs or {})


def of_open_sizes(module: torch.nn.Module, env: Environment) -> Callable[..., Any]:
    """Returns ``func(states, args, kwargs)`` of a module, whose sizes may be symbols.

    Raises:
      Unsupported: an operator of torch's own was replaced, which a trace cannot take note of.
    """
    replaced = [x for table in env.tables for x in table if isinstance(x, OPERATORS)]
    if any(str(x).startswith("aten.") for x in replaced):
        raise Unsupported(
            f"functions in the place of {', '.join(map(str, replaced))} in a program of open sizes",
            why="such a program is traced at once, where torch's functions can be replaced alone",
            do="register the function that calls it, such as torch.nn.functional.silu",
        )
    model = from_torch(Serving(module, env))

    def func(states: Mapping[str, jax.Array], args: tuple, kwargs: Mapping[str, Any]) -> Any:
        named = {f"module.{name}": x for name, x in states.items()}
        params = {name: named.get(name, x) for name, x in model.params.items()}
        state = {name: named.get(name, x) for name, x in model.state.items()}
        return model.apply(params, *args, state=state, **kwargs)

    return func


class _Graph(torch.nn.Module):
    """An exported graph with its tensors, as a module."""

    def __init__(self, module: torch.fx.GraphModule):
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        return _Interpreted(self.module).run(*args)


def exported_program_to_jax(
    exported_program: ExportedProgram,
) -> tuple[dict[str, jax.Array], Callable[..., Any]]:
    """Returns (the tensors of a program by name, ``func(states, inputs)``, which gives a list).

    Args:
      exported_program: what ``torch.export.export`` gave; its decompositions are run.
    """
    module = exported_program.run_decompositions().module()
    model = from_torch(_Graph(module))
    names = set(model.params)

    def func(states: Mapping[str, jax.Array], inputs: tuple) -> Any:
        params = {name: x for name, x in states.items() if name in names}
        state = {name: x for name, x in states.items() if name not in names}
        out: Any = model.apply(params, *inputs, state=state)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    return {**model.params, **model.state}, func


def extract_avals(exported: ExportedProgram) -> list[jax.ShapeDtypeStruct]:
    """Returns shape and dtype of each input, with the symbolic sizes of the program."""
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    names = {x.arg.name for x in exported.graph_signature.input_specs if x.kind == kind}
    nodes = [x for x in exported.graph.nodes if x.op == "placeholder" and x.name in names]
    sizes = _symbolic_sizes(exported)
    return [_aval(node.meta["val"], sizes) for node in nodes]


def _aval(value: Any, sizes: Mapping[str, Any]) -> jax.ShapeDtypeStruct:
    if not isinstance(value, torch.Tensor):
        return jax.ShapeDtypeStruct((), type(value))
    shape = [sizes[str(x)] if isinstance(x, torch.SymInt) else x for x in value.shape]
    return jax.ShapeDtypeStruct(shape, mappings.t2j_dtype(value.dtype))


def _symbolic_sizes(exported: ExportedProgram) -> dict[str, Any]:
    """Returns JAX's symbolic size for each of torch's, within the same limits."""
    ranges = exported.range_constraints
    symbols = [x for x in ranges if x.is_symbol]
    limits = [f"{x} >= {ranges[x].lower}" for x in symbols if ranges[x].lower != 2]
    limits += [f"{x} <= {ranges[x].upper}" for x in symbols if ranges[x].upper.is_Integer]
    scope = jax.export.SymbolicScope(limits)
    names = {str(x): str(x) for x in ranges}
    return {name: jax.export.symbolic_shape(text, scope=scope)[0] for name, text in names.items()}


def exported_program_to_stablehlo(
    exported_program: ExportedProgram,
) -> tuple[dict[str, jax.Array], jax.export.Exported]:
    """Returns (the tensors of a program by name, ``jax.export``'s program of it).

    Args:
      exported_program: what ``torch.export.export`` gave, of open sizes or not.
    """
    weights, func = exported_program_to_jax(exported_program)
    avals = extract_avals(exported_program)
    return weights, jax.export.export(jax.jit(func))(weights, (*avals,))
