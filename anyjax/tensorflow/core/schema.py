"""TensorFlow's op definitions as the registry: how an ``OpDef`` becomes a row's signature.

A lowering sees the inputs in their order, then the attributes that the inputs' types and lengths do
not already tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from anyjax.stablehlo.core.static_values import Entries, Known, Static, modes
from anyjax.table import REQUIRED, Param, Signature, Table
from anyjax.tensorflow.core import attributes
from anyjax.tensorflow.core.private import op_def_of
from anyjax.typing import F

# Attributes that only TensorFlow's kernels read.
DROPPED = {
    "use_cudnn_on_gpu", "validate_indices", "validate_shape", "use_locking", "container",
    "shared_name", "parallel_iterations", "allow_uninitialized", "propagate_nans", "debug_name",
}  # fmt: skip

# Operators that draw from TensorFlow's global state; their lowerings take a key instead.
RANDOM = {
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal",
    "ParameterizedTruncatedNormal", "RandomShuffle", "RandomGamma", "RandomPoisson",
    "RandomPoissonV2", "Multinomial",
}  # fmt: skip


@lru_cache(None)
def read(op: str) -> Signature:
    """Returns the signature that the ``OpDef`` of an operator describes."""
    definition = op_def_of(op)
    inferred = {
        name
        for arg in definition.input_arg
        for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)
        if name
    }
    params = [
        Param(arg.name, "arrays" if arg.number_attr or arg.type_list_attr else "array")
        for arg in definition.input_arg
    ]
    for attr in definition.attr:
        if attr.name in inferred:
            continue
        dropped = attr.name in DROPPED
        kind = "dropped" if dropped else "dtype" if attr.type == "type" else "value"
        has = attr.HasField("default_value")
        default = attributes.value_of(attr.default_value) if has else REQUIRED
        params.append(Param(attr.name, kind, default))
    inside = ", ".join(
        p.name if p.default is REQUIRED else f"{p.name}={p.default!r}" for p in params
    )
    return Signature(op, tuple(params), f"{op}({inside})", op in RANDOM)


def overloads(op: str) -> list[str]:
    """Returns the operator itself, if this TensorFlow has it."""
    return [op] if op_def_of(op) is not None else []


table = Table("tensorflow", read, overloads)


def lowers(*ops: str) -> Callable[[F], F]:
    """Makes a function the lowering of TensorFlow operators, as a decorator.

    Its parameters have the names and the order of the operator's inputs and attributes (as in
    ``tf.raw_ops``), without attributes that the inputs tell (``T``, ``N``) and those that only
    TensorFlow's kernels read. An operator that draws random numbers gets ``rng``, a key, first.
    A parameter annotated ``Static`` comes as a numpy array, and values that are traced are an
    error; one annotated ``Known`` comes as a numpy array where its values are known, a vector
    annotated ``Entries`` as a sequence of which some may be known. Several outputs are a tuple.

    Args:
      *ops: names such as ``"AddV2"``.

    Raises:
      TableError: the parameters are not the schema's.

    Example:
      >>> import jax, numpy as np, tensorflow as tf
      >>> @anyjax.tensorflow.lowers("Rint")
      ... def rint(x):
      ...     return jax.numpy.round(x)
      >>> anyjax.from_tensorflow(tf.math.rint)(np.float32([0.5, 1.7])).tolist()
      [0.0, 2.0]
    """
    return table.lowers(*ops)


@lru_cache(None)
def stateful(op: str) -> bool:
    """Returns whether an operator does more than compute outputs from inputs."""
    return bool(op_def_of(op).is_stateful)


def sizes(op: str, attr, outputs: bool = True) -> list[int | None]:
    """Counts the tensors of each output (or input) argument, None for a single one."""
    definition = op_def_of(op)
    counts: list[int | None] = []
    for arg in definition.output_arg if outputs else definition.input_arg:
        if arg.number_attr:
            counts.append(int(attr[arg.number_attr].i))
        elif arg.type_list_attr:
            counts.append(len(attr[arg.type_list_attr].list.type))
        else:
            counts.append(None)
    return counts


__all__ = ["Entries", "Known", "Static", "lowers", "modes", "read", "sizes", "stateful", "table"]
