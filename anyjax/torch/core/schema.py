"""torch's schemas as the registry: how an ``aten`` operator's schema becomes a row's signature."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import torch

from anyjax.table import REQUIRED, Param, Signature, Table
from anyjax.torch.core import private
from anyjax.typing import F

DROPPED = {"Device", "Layout", "MemoryFormat", "Generator", "Stream"}
DROPPED_NAMES = {"pin_memory", "non_blocking"}


class Absent(str):
    """The name of an operator that this torch does not have: its row waits until it is met."""

    def __getattr__(self, name: str) -> Absent:
        return Absent(f"{self}.{name}")


class Operators:
    """``torch.ops.aten`` of any version."""

    absent: ClassVar[set[str]] = set()

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(torch.ops.aten, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            self.absent.add(name)
            return Absent(f"aten.{name}")


aten = Operators()


def kind_of(argument) -> str:
    """Returns what a schema argument is to a lowering: array, arrays, dtype, value, or dropped."""
    text = str(argument.real_type)
    bare = text.removeprefix("Optional[").removesuffix("]") if text.startswith("Optional") else text
    if bare in DROPPED or argument.name in DROPPED_NAMES:
        return "dropped"
    if bare == "ScalarType":
        return "dtype"
    return {"Tensor": "array", "List[Tensor]": "arrays", "List[Optional[Tensor]]": "arrays"}.get(
        bare, "value"
    )


def param_of(argument) -> Param:
    """Returns one argument. A default dtype is given as a number of torch's C++; only int64's
    occurs.
    """
    kind = kind_of(argument)
    default = argument.default_value if argument.has_default_value() else REQUIRED
    return Param(argument.name, kind, torch.int64 if kind == "dtype" and default == 4 else default)


@lru_cache(None)
def read(op: private.OpOverload) -> Signature:
    """Returns the signature that ``op._schema`` and its tags describe."""
    schema = op._schema
    arguments = schema.arguments
    return Signature(
        name=str(op),
        params=tuple(map(param_of, arguments)),
        text=str(schema),
        random=torch.Tag.nondeterministic_seeded in op.tags,
        writes=tuple(a.name for a in arguments if a.is_write) if schema.is_mutable else (),
    )


def overloads(key) -> list[private.OpOverload]:
    """Returns the overload itself, or a packet's overloads that take tensors, write nothing and
    name no dimensions.
    """
    if isinstance(key, str):  # not registered yet, or absent
        return []
    if isinstance(key, private.OpOverload):
        return [key]
    overload_ops = [getattr(key, name) for name in key.overloads()]
    return [op for op in overload_ops if _lowerable(op._schema)]


def _lowerable(schema) -> bool:
    parameters = str(schema).partition("(")[2]
    return (
        not schema.is_mutable
        and "Tensor" in parameters
        and "Dimname" not in parameters
        and "Dict" not in parameters
    )


def family(key) -> Any:
    """Returns the packet of an overload, or of a packet itself."""
    return key.overloadpacket if isinstance(key, private.OpOverload) else key


table = Table("torch", read, overloads, family)


def lowers(*ops: Any) -> Callable[[F], F]:
    """Makes a function the lowering of torch operators, as a decorator.

    Its parameters have the schema's names and order, without device, layout, memory format and
    generator; positional-only ones may have names of their own. An operator that draws random
    numbers gets ``rng``, a key, first. They come by position: arrays, ``jnp`` dtypes, Python
    values, with defaults filled in.

    Args:
      *ops: overloads (``torch.ops.aten.add.Tensor``), packets (``torch.ops.aten.add``: all their
        functional overloads) or names of operators that another library registers later.

    Raises:
      TableError: the parameters are not the schema's, or the operator writes to an argument.

    Example:
      >>> import torch, numpy as np
      >>> torch.library.define("examples::twice", "(Tensor x) -> Tensor")
      >>> @anyjax.lowers(torch.ops.examples.twice)
      ... def twice(x):
      ...     return 2 * x
      >>> anyjax.from_torch(lambda x: torch.ops.examples.twice(x))(np.ones(2)).tolist()
      [2.0, 2.0]
    """
    return table.lowers(*ops)


_STATISTICS = ("running_mean", "running_var")

# Operators that write arguments although their schema says they do not. Functionalization cannot
# see these writes, so their lowerings return (result, *new values) and the engine stores them.
# Source: aten/src/ATen/native/Normalization.cpp. Others with a side effect (rrelu_with_noise,
# fused_moving_avg_obs_fake_quant, embedding_renorm_, _batch_norm_with_update) declare it.
HIDDEN_WRITES = {
    aten.batch_norm.default: _STATISTICS,
    aten.instance_norm.default: _STATISTICS,
    aten.native_batch_norm.default: _STATISTICS,
    aten.batch_norm_update_stats.default: _STATISTICS,
}
