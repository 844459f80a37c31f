"""Custom calls by the name of their target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import MissingOps, Unsupported, WrongArguments
from anyjax.private_names import Inconclusive
from anyjax.stablehlo.core.private import threefry2x32_p
from anyjax.stablehlo.core.region import Operation
from anyjax.stablehlo.core.schema import overloads, table
from anyjax.stablehlo.core.static_values import as_jax, known, sizes
from anyjax.stablehlo.core.types import Type
from anyjax.stablehlo.ops.lapack import ROUTINES
from anyjax.stablehlo.ops.random import generate_bits
from anyjax.stablehlo.ops.window import reduce_window
from anyjax.typing import F

CALLS: dict[str, Callable[..., Any]] = {}


def serves(*targets: str) -> Callable[[F], F]:
    """Registers ``function(operands, attributes, types) -> outputs`` for targets, as a decorator.

    Args:
      *targets: names of custom calls, as they stand in a module after ``custom_call @``. The
        function gets the operands as a list of arrays, the call's attributes by name, and the types
        of its results with ``shape`` and ``dtype``; it returns a list of arrays. The functions that
        a call names are in ``attributes["called_computations"]``.

    Example:
      >>> import numpy as np
      >>> @anyjax.stablehlo.serves("twice")
      ... def twice(operands, attributes, types):
      ...     return [2 * operands[0]]
      >>> model = anyjax.from_stablehlo(
      ...     "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {"
      ...     "  %y = stablehlo.custom_call @twice(%x) : (tensor<2xf32>) -> tensor<2xf32>"
      ...     "  return %y : tensor<2xf32> }"
      ... )
      >>> model(np.array([1, 2], np.float32)).tolist()
      [2.0, 4.0]
    """

    def add(function: F) -> F:
        CALLS.update(dict.fromkeys(targets, function))
        return function

    return add


def call(op: Operation, target: str, operands: list, attributes: dict[str, Any]) -> Sequence[Any]:
    """Computes a custom call.

    Raises:
      MissingOps: nothing serves its target.
    """
    at = attributes.get("indices_of_shape_operands")  # they repeat the shapes of the outputs
    operands = [x for i, x in enumerate(operands) if at is None or i not in at]
    is_tuple = len(op.types) == 1 and not isinstance(op.types[0], (Type, str))
    types = op.types[0] if is_tuple else op.types
    if target in CALLS:
        out = CALLS[target](operands, attributes, types)
    elif target in ROUTINES:
        out = ROUTINES[target]([as_jax(x) for x in operands], options_of(attributes), types)
    else:
        raise unknown(target)
    out = out if isinstance(out, (list, tuple)) else [out]
    return [tuple(out)] if is_tuple else out


def unknown(target: str) -> MissingOps:
    """Returns the error for a target that nothing serves."""
    return MissingOps(
        f"the custom call {target!r} is unknown",
        ops=(target,),
        why="what it computes stands in the program that made the module, not in the module",
        do=f"serve it: @anyjax.stablehlo.serves({target!r}), a function of (operands, "
        "attributes, types)",
    )


def options_of(attributes: dict[str, Any]) -> Any:
    """Returns the options of a call, whose attribute depends on the release of XLA."""
    for name in ("mhlo.backend_config", "mhlo.attributes", "backend_config"):
        if attributes.get(name):
            return attributes[name]
    return {}


@serves(
    "Sharding", "xla.sdy.FuncResultSharding", "LayoutConstraint", "annotate_device_placement",
    "MoveToHost", "MoveToDevice", "xla.sdy.PropagationBarrier",
)  # fmt: skip
def identity(operands, attributes, types):
    """Serves calls about the placement of arrays."""
    return operands


@serves(
    "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
)  # fmt: skip
def shard(operands, attributes, types):
    """Serves calls for a device's shard of an array: with one device it is the array."""
    for x, kind in zip(operands, types):
        if any(n is not None and n != m for n, m in zip(kind.shape, np.shape(x))):
            raise Unsupported(
                f"a part of an array: {kind.shape} of {np.shape(x)}",
                why="the module is written for several devices",
                do="export the function for one device",
            )
    return operands


@serves("xla.sdy.ShardingGroup", "dce_sink")
def nothing(operands, attributes, types):
    return []


@serves("AllocateBuffer")
def allocated(operands, attributes, types):
    return [jnp.zeros(kind.shape, kind.dtype) for kind in types]


@serves("shape_assertion")
def shape_assertion(operands, attributes, types):
    """Checks a condition on sizes of the arguments; on symbolic sizes it may be undecidable."""
    truth, *inputs = operands
    try:
        holds = bool(known(truth, "a condition on shapes"))
    except Inconclusive:
        return []
    if not holds:
        raise WrongArguments(
            attributes["error_message"].format(*map(str, inputs)),
            why="the module asserts it of the shapes of its arguments",
            do="give arguments of other sizes",
        )
    return []


@serves("cu_threefry2x32", "cu_threefry2x32_ffi", "hip_threefry2x32", "hip_threefry2x32_ffi")
def threefry(operands, attributes, types):
    return threefry2x32_p.bind(*map(jnp.asarray, operands[:4]))


@serves("ApproxTopK", "stablehlo.dynamic_approx_top_k")
def approx_top_k(operands, attributes, types):
    """Computes the exact result; the comparison tells whether it is of the largest."""
    options = options_of(attributes)
    axis = options["reduction_dim"]
    count = types[0].shape[axis]
    if count is None:
        count = sizes([known(operands[4], "k")[()]])[0] if len(operands) > 4 else options["top_k"]
    (body,) = attributes["called_computations"]
    (compare,) = [op for op in body.region.operations if op.name == "stablehlo.compare"][-1:]
    largest = compare.arguments[2][1] in ("GT", "GE")
    return top(as_jax(operands[0]), count, axis, largest)


def top(x, count, axis, largest):
    ordered = x if largest else -x if jnp.issubdtype(x.dtype, jnp.floating) else ~x
    moved = jnp.moveaxis(ordered, axis, -1)
    _, places = lax.top_k(lax.stop_gradient(moved), count)
    values = jnp.take_along_axis(jnp.moveaxis(x, axis, -1), places, -1)
    return [jnp.moveaxis(x, -1, axis) for x in (values, places)]


@serves("mhlo.topk")
def topk(operands, attributes, types):
    options = options_of(attributes)
    return top(as_jax(operands[0]), options["k"], -1, options.get("largest", True))


@serves("stablehlo.dynamic_top_k")
def dynamic_top_k(operands, attributes, types):
    (count,) = sizes([known(operands[1], "k")[()]])
    return lax.top_k(as_jax(operands[0]), count)


@serves("stablehlo.dynamic_rng_bit_generator")
def dynamic_rng_bit_generator(operands, attributes, types):
    shape = sizes(known(operands[1], "a shape"))
    bits = Type(shape, types[1].wide)
    return generate_bits(bits, attributes["rng_algorithm"], as_jax(operands[0]))


@serves("stablehlo.dynamic_reduce_window")
def dynamic_reduce_window(operands, attributes, types):
    *arrays, size, strides, base, dilations, padding = operands
    half = len(arrays) // 2
    lists = [sizes(known(x, "a window")) for x in (size, strides, base, dilations)]
    edges = [sizes(x) for x in known(padding, "a padding")]
    arrays = [as_jax(x) for x in arrays]
    (body,) = attributes["called_computations"]
    return reduce_window(types, arrays[:half], arrays[half:], *[*lists, edges, body])


# fmt: off
FUNCTIONS = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh", "digamma", "erf",
    "erfc", "erf_inv", "is_inf", "is_neg_inf", "is_pos_inf", "lgamma", "sinh", "square", "tan",
    "next_after", "polygamma", "zeta",
]
# fmt: on


def function(name: str) -> Callable:
    """Serves a function of MHLO that StableHLO has no operation for."""

    def served(operands, attributes, types):
        if not overloads(f"chlo.{name}"):
            raise unknown(f"mhlo.{name}")
        return [table[f"chlo.{name}"].lowering(*map(as_jax, operands))]

    return served


CALLS.update({f"mhlo.{name}": function(name) for name in FUNCTIONS})
