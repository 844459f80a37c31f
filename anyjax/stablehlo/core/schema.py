"""StableHLO's op classes as the registry: how an operation's builder becomes a row's signature.

A lowering sees the type of the result if the builder takes it, then the operands and
attributes in the builder's order, then the regions as functions.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from jax.interpreters.mlir import ir

from anyjax.stablehlo.core.private import chlo, sdy, stablehlo
from anyjax.table import Param, Signature, Table

DIALECTS = {"stablehlo": stablehlo, "chlo": chlo, "sdy": sdy}
DROPPED = {
    "loc",
    "ip",
    "results",
    "results_",
    "num_branches",
    "result_accuracy",
    "indices_are_sorted",
    "carries",
}
REGIONS = {
    "computation", "body", "cond", "comparator", "update_computation", "select", "scatter",
    "true_branch", "false_branch", "branches", "composite_regions",
}  # fmt: skip


def builder(name: str) -> Any:
    """Returns the function that builds an operation such as ``stablehlo.add``, or None."""
    dialect, _, op = name.partition(".")
    module, op = DIALECTS.get(dialect), op.replace("-", "_")
    return getattr(module, op, None) or getattr(module, f"{op}_", None)


@lru_cache(None)
def read(name: str) -> Signature:
    """Returns the signature that the builder and the class of an operation describe."""
    parameters = inspect.signature(builder(name)).parameters.values()
    params = [_param(p) for p in parameters if p.name not in DROPPED]
    names = {p.name for p in params}
    params += [Param(n, "value") for n in _properties(name) if n in REGIONS and n not in names]
    return Signature(name, tuple(params), f"{name}({', '.join(p.name for p in params)})")


def _param(parameter: inspect.Parameter) -> Param:
    """Describes an operand, or an attribute, which is optional if the builder has a default."""
    if parameter.default is not None:
        return Param(parameter.name, "value")
    unit = parameter.annotation == bool | None  # its presence is its value
    return Param(parameter.name, "value", False if unit else None)


def _properties(name: str) -> list[str]:
    return [k for k, v in vars(_classes()[name]).items() if isinstance(v, property)]


@lru_cache(None)
def _classes() -> dict[str, type]:
    every = [x for module in DIALECTS.values() for x in vars(module).values()]
    views = [x for x in every if isinstance(x, type) and issubclass(x, ir.OpView)]
    return {x.OPERATION_NAME: x for x in views if hasattr(x, "OPERATION_NAME")}


def overloads(name: str) -> list[str]:
    """Returns the operation itself, if this jaxlib has it."""
    return [name] if builder(name) is not None else []


table = Table("stablehlo", read, overloads)
lowers = table.lowers
