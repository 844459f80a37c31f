"""ONNX's operator schemas as the registry: how an ``OpSchema`` becomes a row's signature.

A lowering sees the inputs in their order, then the attributes by name. A row is for one version of
an operator, and serves the older ones back to the row before it: what they have as an attribute and
the newer version as an input is an input, by its name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from onnx import AttributeProto, defs, helper

from anyjax.onnx.core import microsoft
from anyjax.onnx.core.dtypes import to_numpy
from anyjax.stablehlo.core.static_values import Known, Static, modes
from anyjax.table import REQUIRED, Param, Row, Signature, Table
from anyjax.typing import F

MICROSOFT = "com.microsoft"
RANDOM = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
}  # fmt: skip
DTYPES = {"to", "dtype", "stash_type", "output_dtype", "softmax_precision", "output_datatype"}
# What the newest version calls otherwise: (operator, name in an older version) -> its name.
RENAMED = {("Pad", "value"): "constant_value", ("TopK", "k"): "K"}
Variadic = defs.OpSchema.FormalParameterOption.Variadic
Optional = defs.OpSchema.FormalParameterOption.Optional


class Op(NamedTuple):
    """One version of an operator; ``version`` is the first opset that has it."""

    domain: str
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.domain}::{self.name}" if self.domain else self.name


@lru_cache(None)
def versions(domain: str, name: str) -> tuple[int, ...]:
    """Returns the versions of an operator, the oldest first; none if there is no such operator.

    Example:
      >>> versions("", "Softmax")
      (1, 11, 13)
    """
    is_microsofts = domain == MICROSOFT and name in microsoft.OPERATORS
    return tuple(_histories().get((domain, name), (1,) if is_microsofts else ()))


@lru_cache(None)
def _histories() -> dict[tuple[str, str], list[int]]:
    histories: dict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        histories[schema.domain, schema.name].append(schema.since_version)
    return {key: sorted(versions) for key, versions in histories.items()}


def newest() -> list[str]:
    """Returns the names of the operators that the package has schemas of, deprecated ones too."""
    names = (f"{domain}::{name}" if domain else name for domain, name in _histories())
    return sorted(names, key=lambda name: ("::" in name, name))


def op_of(domain: str, name: str, opset: int) -> Op | None:
    """Returns the version of an operator that an opset has, None if it has none.

    Example:
      >>> op_of("", "Softmax", 12), op_of("", "Softmix", 12)
      (Op(domain='', name='Softmax', version=11), None)
    """
    domain = "" if domain == "ai.onnx" else domain
    fitting = [v for v in versions(domain, name) if v <= opset]
    if not fitting and not domain and name in microsoft.IN_ONNX:
        return Op(*microsoft.IN_ONNX[name])
    return Op(domain, name, fitting[-1]) if fitting else None


def key_of(key: str) -> Op:
    """Returns the operator that ``[domain::]name[@version]`` names; the newest without a version.

    Example:
      >>> key_of("Softmax@11").version, str(key_of("ai.onnx.ml::Scaler"))
      (11, 'ai.onnx.ml::Scaler')
    """
    path, _, version = key.partition("@")
    domain, _, name = path.rpartition("::")
    newest = (versions(domain, name) or (0,))[-1]
    return Op(domain, name, int(version) if version else newest)


@lru_cache(None)
def read(op: Op) -> Signature:
    """Returns the signature that the schema of an operator describes."""
    if op.domain == MICROSOFT:
        params = microsoft.params(op.name)
    else:
        schema = defs.get_schema(op.name, op.version, op.domain)
        params = [
            Param(
                x.name,
                "arrays" if x.option == Variadic else "array",
                None if x.option == Optional else REQUIRED,
            )
            for x in schema.inputs
        ]
        params += [_param(name, x) for name, x in sorted(schema.attributes.items())]
    inside = ", ".join(
        p.name if p.default is REQUIRED else f"{p.name}={p.default!r}" for p in params
    )
    random = op.name in RANDOM and not op.domain
    return Signature(str(op), tuple(params), f"{op.name}-{op.version}({inside})", random)


def _param(name: str, attribute: defs.OpSchema.Attribute) -> Param:
    default: Any = REQUIRED if attribute.required else None
    if attribute.default_value.type != AttributeProto.UNDEFINED:
        default = plain(helper.get_attribute_value(attribute.default_value))
    if name not in DTYPES:
        return Param(name, "value", default)
    if isinstance(default, int):
        default = to_numpy(default) if default else None
    return Param(name, "dtype", default)


def plain(value: object) -> Any:
    """Returns an attribute's value with text in the place of bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def inputs(op: Op) -> list[Param]:
    """Returns the inputs that the schema of an operator declares."""
    return [p for p in read(op).params if p.kind in ("array", "arrays")]


def overloads(op: Op) -> list[Op]:
    """Returns the operator itself, if this release of ONNX has it."""
    return [op] if op.version in versions(op.domain, op.name) else []


table = Table("onnx", read, overloads, lambda op: op[:2])


def row_of(op: Op) -> Row | None:
    """Returns the row of an operator: its own, or that of the next version which has one."""
    later = (Op(op.domain, op.name, v) for v in versions(op.domain, op.name) if v >= op.version)
    return next(filter(None, map(table.find, later)), None)


def lowers(*keys: str) -> Callable[[F], F]:
    """Makes a function the lowering of ONNX operators, as a decorator.

    Its parameters have the names of the operator's inputs, in their order, then those of its
    attributes, in the order of the alphabet. An input that is left out is None, as is an attribute
    without a default. An operator that draws random numbers gets ``rng``, a key, first. A
    parameter annotated ``Static`` comes as a numpy array, and values that are traced are an error;
    one annotated ``Known`` comes as a numpy array where its values are known. Several outputs are a
    tuple; one that is a function is called only where the graph uses this output.

    Args:
      *keys: ``"Add"``, ``"Softmax@11"`` for the version of opset 11 and those before it,
        ``"com.microsoft::FastGelu"`` for an operator of another domain.

    Raises:
      TableError: the parameters are not the schema's.

    Example:
      >>> import jax, numpy as np
      >>> from onnx import parser
      >>> @anyjax.onnx.lowers("Mish")
      ... def mish(X):
      ...     return X * jax.numpy.tanh(jax.nn.softplus(X))
      >>> head = '<ir_version: 8, opset_import: ["": 18]>'
      >>> mish = parser.parse_model(head + "m (float[2] x) => (float[2] y) {y = Mish(x)}")
      >>> anyjax.from_onnx(mish)(np.zeros(2, np.float32)).tolist()
      [0.0, 0.0]
    """
    return table.lowers(*map(key_of, keys))


def update(rows: dict[str, Callable]) -> None:
    """Adds rows by the names of their operators."""
    table.update({key_of(key): function for key, function in rows.items()})


__all__ = ["Known", "Static", "lowers", "modes", "read", "row_of", "table", "update"]
