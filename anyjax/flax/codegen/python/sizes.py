"""Symbolic sizes as Python expressions of the names that a function gives to its inputs' sizes."""

from __future__ import annotations

import ast
from typing import Any

import torch

from anyjax.flax.codegen.python.syntax import free_name
from anyjax.flax.codegen.python.templates import expression

DEFAULTS = {
    1: ["length"],
    2: ["batch", "length"],
    3: ["batch", "length", "features"],
    4: ["batch", "channels", "height", "width"],
}


def symbolic(size: object) -> Any:
    """Returns the sympy expression of a symbolic size, or the number that torch.export took for it
    from the example; other numbers as they are.
    """
    if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size
    example_values = getattr(size.node.shape_env, "real_tensor_prop_unbacked_vals", None)
    expr = size.node.expr
    if example_values and any(x in example_values for x in expr.free_symbols):
        expr = expr.xreplace(example_values)
        return int(expr) if expr.is_Integer else expr
    return expr


def unknown(size: object) -> set[Any]:
    """Returns the symbols in a size, or expression of sizes, that stand for numbers in arrays."""
    if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        size = size.node.expr
    symbols = getattr(size, "free_symbols", ())
    return {x for x in symbols if x.name.startswith(("u", "zu"))}


CALLS = {
    "Max": "max",
    "Min": "min",
    "CeilToInt": "math.ceil",
    "FloorToInt": "math.floor",
    "TruncToInt": "int",
    "RoundToInt": "round",
    "ToFloat": "float",
}


def _number(found: Any) -> int | float:
    """Returns a number of sympy's as Python's."""
    if isinstance(found, (int, float)):
        return found
    return int(found) if getattr(found, "is_Integer", False) else float(found)


class Sizes:
    """The sizes that one function needs.

    Attributes:
      used: (array, dimension) -> name, of the sizes that were used.
    """

    def __init__(
        self, arrays: dict[str, list[Any]], names: dict[tuple[str, int], str], taken: set[str]
    ):
        self.sources: dict[Any, tuple[str, int]] = {}
        for array, shape in arrays.items():
            for dim, size in enumerate(shape):
                if not isinstance(symbol := symbolic(size), int):
                    self.sources.setdefault(symbol, (array, dim))
        self.arrays, self.names, self.reserved = arrays, names, set(taken)
        self.used: dict[tuple[str, int], str] = {}
        self.asked: dict[Any, str] | None = None  # sizes that the caller has to tell
        self.inline = False  # whether sizes have no names, as in a lambda

    def __call__(self, size: object) -> ast.expr:
        """Returns the size as an expression.

        Raises:
          NotImplementedError: it is made of sizes that no input has.
        """
        expr = symbolic(size)
        if isinstance(expr, (int, float, bool)) or getattr(expr, "is_number", False):
            return expression(_number(expr))
        return ast.parse(self._text(expr), mode="eval").body

    def static(self, name: str) -> int | None:
        """Returns the number behind the author's name for a size, None if it is symbolic."""
        for (array, dim), called in self.names.items():
            if called == name and array in self.arrays and -1 <= dim < len(self.arrays[array]):
                size = symbolic(self.arrays[array][dim])
                is_taken = name in self.reserved and self.used.get(self._place(array, dim)) != name
                return size if isinstance(size, int) and not is_taken else None
        return None

    def same(self, dim: int, size: int) -> ast.expr | None:
        """Returns the name of the size of an argument that has this number in this dimension."""
        if self.inline:
            return None
        for array, shape in self.arrays.items():
            if dim < len(shape) - 1 and symbolic(shape[dim]) == size:
                return ast.Name(self._name(array, dim), ast.Load())
        return None

    def named(self, name: str) -> None:
        """Adds the author's size of this name to the header."""
        for (array, dim), called in self.names.items():
            if called == name and array in self.arrays:
                self._name(*self._place(array, dim))
                return

    def _place(self, array: str, dim: int) -> tuple[str, int]:
        return array, dim % len(self.arrays[array])

    def _text(self, expr: Any) -> str:
        if expr in self.sources:
            return self._name(*self.sources[expr])
        if expr.is_Mul and (multiple := self._multiple(expr)):
            return multiple
        if expr.is_Symbol:
            if self.asked is None:
                raise NotImplementedError(f"the size {expr}, which no input has")
            if expr not in self.asked:  # the caller knows it
                name = free_name("length", self.reserved | {*self.asked.values()})
                self.reserved.add(name)
                self.asked[expr] = name
            return self.asked[expr]
        if expr.is_number:
            return repr(_number(expr))
        factors = [f"({self._text(x)})" if not x.is_Atom else self._text(x) for x in expr.args]
        kind = type(expr).__name__
        joined = {
            "Add": " + ",
            "Mul": " * ",
            "FloorDiv": " // ",
            "PythonMod": " % ",
            "Mod": " % ",
            "Pow": "**",
            "IntTrueDiv": " / ",
            "FloatTrueDiv": " / ",
            "FloatPow": "**",
            "PowByNatural": "**",
        }
        if kind in joined:
            return joined[kind].join(factors)
        if kind in CALLS:
            return f"{CALLS[kind]}({', '.join(factors)})"
        raise NotImplementedError(f"a size computed by {kind}")

    def _multiple(self, expr: object) -> str | None:
        """Returns a multiple of an input's size: rows are ``2 * batch * length``."""
        for size in self.sources:
            rest = expr / size if getattr(size, "is_Mul", False) else None
            if rest is not None and rest.is_Integer:
                return f"{rest} * {self._name(*self.sources[size])}"
        return None

    def _name(self, array: str, dim: int) -> str:
        if self.inline:
            return f"{array}.shape[{dim}]"
        if (array, dim) not in self.used:
            rank = len(self.arrays[array])
            names = DEFAULTS.get(rank, [f"size_{i}" for i in range(rank)])
            name = self.names.get((array, dim)) or self.names.get((array, dim - rank)) or names[dim]
            self.used[array, dim] = free_name(name, self.reserved)
            self.reserved.add(self.used[array, dim])
        return self.used[array, dim]

    def header(self) -> list[ast.stmt]:
        """Returns ``batch, length = x.shape[:2]`` for the sizes that were used."""
        lines = []
        for array in dict.fromkeys(a for a, _ in self.used):
            rank = len(self.arrays[array])
            dims = {d: n for (a, d), n in self.used.items() if a == array}
            last = max(dims)
            if len(dims) == 1:
                lines.append(f"{dims[last]} = {array}.shape[{last}]")
            else:
                names = [dims.get(i, "_") for i in range(last + 1)]
                cut = "" if last == rank - 1 else f"[:{last + 1}]"
                lines.append(f"{', '.join(names)} = {array}.shape{cut}")
        return ast.parse("\n".join(lines)).body
