"""Named sizes: symbolic shapes for saving, and their expressions evaluated for a call."""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax import export

from anyjax import trees
from anyjax.errors import WrongArguments
from anyjax.source import Source

Result = TypeVar("Result")
_ARITHMETIC: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable] = {
    "mod": operator.mod,
    "floordiv": operator.floordiv,
    "max": max,
    "min": min,
}
_RELATIONS: dict[type, Callable] = {ast.Eq: operator.eq, ast.GtE: operator.ge, ast.LtE: operator.le}


def parts(text: str) -> list[str]:
    """Splits a shape, written as text, into dimensions.

    Example:
      >>> parts("[batch, 2*length, mod(length, 8), 3]")
      ['batch', '2*length', 'mod(length, 8)', '3']
    """
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.Expr) and isinstance(node.value, ast.List)
    return [ast.get_source_segment(text, x) or "" for x in node.value.elts]


def names(text: str) -> set[str]:
    """Returns the names of dimensions in an expression.

    Example:
      >>> sorted(names("floordiv(length, 2) + batch"))
      ['batch', 'length']
    """
    identifiers = {x.id for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Name)}
    return identifiers - {*_FUNCTIONS}


def value(text: str, sizes: Mapping[str, int]) -> Any:
    """Evaluates an expression to its integer, or a constraint to a bool.

    Example:
      >>> value("2*length - 1", {"length": 8}), value("mod(length, 8) == 0", {"length": 9})
      (15, False)
    """
    return _value(ast.parse(text.replace("^", "**"), mode="eval").body, sizes)  # JAX writes ^


def check_array(text: str) -> None:
    """Raises ValueError for a described array whose sizes cannot be evaluated; see ``check``.

    Example:
      >>> check_array("float32[2*length, 3]"), check_array("some other string")
      (None, None)
    """
    dtype, bracket, sizes = text.partition("[")
    if bracket and is_dtype(dtype):
        for size in _parsed(text, lambda: parts(bracket + sizes)):
            check_size(size)


def is_dtype(name: str) -> bool:
    """Returns whether this is the name of an array's dtype."""
    try:
        return np.dtype(name).name == name
    except (TypeError, ValueError, SyntaxError):
        return False


def check_size(text: str) -> None:
    """Raises ValueError for a size or a constraint that cannot be evaluated, or not soon.

    Example:
      >>> check_size("length <= 8")
      >>> check_size("9^9^9")
      Traceback (most recent call last):
      ValueError: '9^9^9' is no dimension: its powers are too large
    """
    tree = _parsed(text, lambda: ast.parse(text.replace("^", "**"), mode="eval"))
    powers = [x for x in ast.walk(tree) if isinstance(x, ast.BinOp) and isinstance(x.op, ast.Pow)]
    small = lambda node: isinstance(node, ast.Constant) and node.value in range(9)
    if len(powers) > 4 or not all(small(x.right) for x in powers):
        raise ValueError(f"{text[:80]!r} is no dimension: its powers are too large")
    with contextlib.suppress(ZeroDivisionError):  # of the sizes that stand for those of a call
        _parsed(text, lambda: value(text, dict.fromkeys(names(text), 1)))


def _parsed(text: str, parse: Callable[[], Result]) -> Result:
    """Returns what a function makes of a text; raises ValueError for whatever it cannot read."""
    try:
        return parse()
    except (SyntaxError, LookupError, TypeError, ValueError, RecursionError, MemoryError,
            AssertionError) as error:  # fmt: skip
        raise ValueError(f"{text[:80]!r} is no dimension: {error}") from None


def _value(node: ast.AST, sizes: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, sizes)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _value(node.left, sizes), _value(node.right, sizes)
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _RELATIONS:
        left, right = _value(node.left, sizes), _value(node.comparators[0], sizes)
        return _RELATIONS[type(node.ops[0])](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_value(x, sizes) for x in node.args))
    raise ValueError(f"{ast.unparse(node)} is no dimension")


def suggested(names: Sequence[str], leaves: Sequence[object]) -> str:
    """Returns a ``shapes=`` for a call's first array, as text for an error message.

    Example:
      >>> import numpy as np
      >>> suggested(["n", "input"], [3, np.ones((1, 3, 8, 8))])
      '{"input": "batch, ..."}'
      >>> suggested(["input_ids"], [np.ones((1, 8), int)])
      '{"input_ids": "batch, length"}'
    """
    arrays = ((k, x) for k, x in zip(names, leaves) if trees.is_array(x) and len(x.shape))
    name, array = next(arrays, ("x", None))
    tokens = array is not None and len(array.shape) == 2 and array.dtype.kind in "iu"
    return f'{{"{name}": "{"batch, length" if tokens else "batch, ..."}"}}'


def symbolic(
    source: Source,
    args: tuple,
    kwargs: dict,
    shapes: Mapping[str, str] | None,
    constraints: Sequence[str],
) -> tuple[tuple, dict[str, Any], list[str]]:
    """Returns (args, kwargs, constraints) with symbolic shapes for the arguments that ``shapes``
    names, and arrays as the source takes them.

    Raises:
      WrongArguments: no argument has the name, a shape does not fit the example, JAX does not read
        a constraint, or a dimension occurs only inside of expressions.
    """
    trees.register((args, kwargs))
    leaves, structure = jax.tree.flatten((args, kwargs))
    leaves = [source.as_array(x) for x in leaves]
    arguments = trees.names(args, kwargs, source.positional)
    scope, constraints = _scope(leaves, constraints)
    has_scope = any(is_symbolic(x) for x in leaves)
    unused = set(shapes or {})
    for i, (name, leaf) in enumerate(zip(arguments, leaves)):
        if (key := _key(name, shapes or {})) is None:
            continue
        unused.discard(key)
        leaves[i] = _spec(name, leaf, (shapes or {})[key], scope)
    if unused:
        raise WrongArguments(
            f"shapes= names {', '.join(sorted(unused))}",
            why=f"the arguments are {', '.join(arguments) or 'none'}",
            do=f"use these names: shapes={suggested(arguments, leaves)}",
        )
    sizes = _size_names([x for x in leaves if trees.is_array(x)])
    applicable = [text for text in constraints if names(text) <= sizes]
    if len(applicable) < len(constraints) and not has_scope:
        text = next(x for x in constraints if x not in applicable)
        raise WrongArguments(
            f"the constraint {text} is about {', '.join(sorted(names(text) - sizes))}",
            why=f"the sizes with names are {', '.join(sorted(sizes)) or 'none'}",
            do="use these names, which shapes= gives",
        )
    args, kwargs = jax.tree.unflatten(structure, leaves)
    return args, kwargs, applicable


def _key(name: str, shapes: Mapping[str, str]) -> str | None:
    """Returns the key for a leaf: its name, or that of the argument that it is inside of."""
    inside = lambda key: name.startswith((f"{key}[", f"{key}."))
    return name if name in shapes else next(filter(inside, shapes), None)


def _scope(leaves: Sequence[object], constraints: Sequence[str]) -> tuple[Any, list[str]]:
    """Returns (the scope of all names, its constraints)."""
    if isinstance(constraints, str):
        constraints = [constraints]
    dims = (n for x in leaves if trees.is_array(x) for n in x.shape)
    scope = next((n.scope for n in dims if export.is_symbolic_dim(n)), None)
    if scope is None:
        try:
            return export.SymbolicScope(tuple(constraints)), list(constraints)
        except ValueError as error:
            raise WrongArguments(
                f"constraints={list(constraints)}",
                why=str(error),
                do='write them as jax.export does: constraints=("length <= 2048",)',
            ) from None
    if constraints:
        raise WrongArguments(
            "constraints= beside symbolic shapes that have a scope already",
            why="constraints belong to the scope",
            do="give them there: jax.export.symbolic_shape(shape, constraints=...)",
        )
    # Only the text of a scope shows its constraints.
    _, _, text = str(scope).partition("with constraints:")
    return scope, [line.strip() for line in text.splitlines() if line.strip()]


def _spec(name: str, leaf: object, text: str, scope: export.SymbolicScope) -> jax.ShapeDtypeStruct:
    if not trees.is_array(leaf):
        raise WrongArguments(
            f"shapes= names {name}, which is {leaf!r}",
            why="only an array has a shape",
            do="leave it out",
        )
    try:
        shape = export.symbolic_shape(text, like=leaf.shape, scope=scope)
        if len(shape) != len(leaf.shape):
            raise ValueError(f"the two have {len(leaf.shape)} and {len(shape)} dimensions")
    except ValueError as error:
        raise WrongArguments(
            f"shapes= gives {name} the shape ({text})",
            why=f"the example has {tuple(leaf.shape)}; " + " ".join(str(error).split())[:200],
            do='name sizes and separate them by commas: "batch, length", or "batch, ..."',
        ) from None
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


def is_symbolic(leaf: object) -> bool:
    """Returns True if an array has a named size."""
    return trees.is_array(leaf) and any(map(export.is_symbolic_dim, leaf.shape))


def _size_names(arrays: Sequence[jax.Array]) -> set[str]:
    """Returns the names of sizes.

    Raises:
      WrongArguments: a name is no dimension by itself, from which a call could tell its value.
    """
    sizes = [str(n) for x in arrays for n in x.shape if export.is_symbolic_dim(n)]
    used = {name for text in sizes for name in names(text)}
    if hidden := sorted(used - {*sizes}):
        raise WrongArguments(
            f"the dimension {hidden[0]} is part of {', '.join(s for s in sizes if hidden[0] in s)}",
            why="a call could not tell its size",
            do=f"give some argument a dimension that is {hidden[0]} alone",
        )
    return used
