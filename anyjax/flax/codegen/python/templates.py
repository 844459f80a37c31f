"""Templates: Python expressions whose names are an operator's arguments."""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import keyword
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

DTYPES = {
    torch.bool: "jnp.bool_", torch.uint8: "jnp.uint8", torch.int8: "jnp.int8",
    torch.int16: "jnp.int16", torch.int32: "jnp.int32", torch.int64: "jnp.int32",
    torch.float16: "jnp.float16", torch.bfloat16: "jnp.bfloat16", torch.float32: "jnp.float32",
    torch.float64: "jnp.float32", torch.complex64: "jnp.complex64",
}  # fmt: skip


LOWEST = {
    torch.finfo(dtype).min: f"jnp.finfo({DTYPES[dtype]}).min"
    for dtype in (torch.float16, torch.bfloat16, torch.float32)
}


class ReadArguments(dict):
    """An operator's arguments; ``seen`` are those that a row has read."""

    def __init__(self, args: Mapping[str, Any], seen: set[str] | None = None):
        super().__init__(args)
        self.seen = set() if seen is None else seen

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def __or__(self, more: Any) -> ReadArguments:
        return ReadArguments({**self, **more}, self.seen)


@dataclass(frozen=True)
class Call:
    """An operator to be written.

    Attributes:
      node: its node in the graph.
      args: arguments by name: expressions for tensors and symbolic sizes, else Python values.
      size: returns a size, symbolic or not, as an expression.
      last: whether operands and result have their channels last.
    """

    node: fx.Node
    args: ReadArguments
    size: Callable[[Any], ast.expr]
    last: bool = False

    def __getattr__(self, name: str) -> Any:
        try:
            return self.args[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def name(self) -> str:
        """``softmax`` for ``aten.softmax.int``."""
        return str(self.node.target).split(".")[1]

    @property
    def out(self) -> Any:
        """The fake tensor of the result."""
        return self.node.meta["val"]

    def fake(self, name: str) -> Any:
        """Returns the fake tensor of an argument."""
        position = [x.name for x in self.node.target._schema.arguments].index(name)
        args = self.node.args
        value = args[position] if position < len(args) else self.node.kwargs[name]
        return value.meta["val"] if isinstance(value, fx.Node) else value

    def write(self, template: str, **more: Any) -> ast.expr:
        """Returns the template with the arguments in it."""
        return fill(template, self.args | more)


LIST = "layers_"  # where a Sequential that is a class of its own has its modules
Row = str | Callable[[Call], ast.expr]
table: dict[str, Row] = {}
same_layout: set[str] = set()  # operators whose result has the layout of their operands


def writes(*names: str, elementwise: bool = False) -> Callable:
    """Registers how operators are written: ``function(call) -> expression``."""
    same_layout.update(names if elementwise else ())

    def register(function: Callable[[Call], ast.expr]) -> Callable:
        for name in names:
            table[f"aten.{name}"] = function
        return function

    return register


def rows(templates: Mapping[str, str], elementwise: bool = False) -> None:
    """Registers templates of operators by their names."""
    same_layout.update(templates if elementwise else ())
    table.update({f"aten.{name}": template for name, template in templates.items()})


@functools.cache
def _parsed(template: str) -> ast.expr:
    return ast.parse(template, mode="eval").body


def fill(template: str, args: Mapping[str, Any]) -> ast.expr:
    """Returns the expression, with these in place of its names; ``*name`` splices a list.

    Example:
      >>> ast.unparse(fill("self.reshape(*size)", {"self": ast.Name("x"), "size": [2, -1]}))
      'x.reshape(2, -1)'
    """
    return _Filler(args).visit(copy.deepcopy(_parsed(template)))


class _Filler(ast.NodeTransformer):
    def __init__(self, args: Mapping[str, Any]):
        self.args = args

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return expression(self.args[node.id]) if node.id in self.args else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        spliced: list[ast.expr] = []
        for x in node.args:
            match x:
                case ast.Starred(value=ast.Name(id=name)) if name in self.args:
                    spliced += map(expression, self.args[name])
                case _:
                    spliced.append(self.visit(x))
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return ast.Call(self.visit(node.func), spliced, keywords)


def swapped(expr: ast.expr, one: int, other: int) -> ast.expr:
    """Returns two dimensions exchanged; a second exchange removes the first."""
    match expr:
        case ast.Call(func=ast.Attribute(attr="swapaxes", value=inner), args=args):
            if [x.value for x in args if isinstance(x, ast.Constant)] == [one, other]:
                return inner
    return fill("x.swapaxes(a, b)", {"x": expr, "a": one, "b": other})


def expression(value: Any) -> ast.expr:
    """Returns a Python value as the expression that gives it."""
    if isinstance(value, ast.AST):
        return value  # type: ignore[return-value]
    if isinstance(value, torch.dtype):
        return _parsed(DTYPES[value])
    if isinstance(value, (list, tuple)):
        return ast.Tuple([expression(x) for x in value], ast.Load())
    if isinstance(value, float) and not math.isfinite(value):
        return _parsed("jnp.nan" if value != value else "jnp.inf" if value > 0 else "-jnp.inf")
    if value in LOWEST:
        return _parsed(LOWEST[value])
    if isinstance(value, (int, float)) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


# Imports, and what Linen's apply takes beside the inputs.
TAKEN = {"jax", "jnp", "nnx", "nn", "self", "math", "json", "pathlib", "sys", "dataclasses"}
TAKEN |= {"rngs", "deterministic", "use_running_average", "scope", "method", "mutable"}


def variable(name: str) -> str:
    """Returns a name that hides no builtin and no import of the file."""
    hides = keyword.iskeyword(name) or hasattr(builtins, name) or name in TAKEN
    return f"{name}_" if hides else name


def attribute(path: str) -> ast.expr:
    """Returns ``self.layers[0].mlp`` for ``layers.0.mlp``."""
    path = f"{LIST}.{path}".rstrip(".") if not path or path[0].isdigit() else path
    text = "".join(f"[{x}]" if x.isdigit() else f".{x}" for x in path.split("."))
    return ast.parse(f"self{text}", mode="eval").body
