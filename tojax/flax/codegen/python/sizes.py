"""Symbolic sizes as Python expressions of the names that a function gives to its inputs' sizes."""

from __future__ import annotations

import ast
from typing import Any

import torch

from tojax.flax.codegen.python.templates import expression

DEFAULTS = {
    1: ["length"],
    2: ["batch", "length"],
    3: ["batch", "length", "features"],
    4: ["batch", "channels", "height", "width"],
}


def symbolic(size: Any) -> Any:
    """The sympy expression of a symbolic size; numbers as they are, also those that
    ``tojax.flax.codegen.graph.data_dependent`` takes from the example.
    """
    if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size
    known = getattr(size.node.shape_env, "real_tensor_prop_unbacked_vals", None)
    found = size.node.expr
    if known and any(x in known for x in found.free_symbols):
        found = found.xreplace(known)
        return int(found) if found.is_Integer else found
    return found


def unknown(size: Any) -> set[Any]:
    """The symbols in a size, or in an expression of sizes, that stand for numbers in arrays."""
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
    """A number of sympy's as Python's."""
    if isinstance(found, (int, float)):
        return found
    return int(found) if getattr(found, "is_Integer", False) else float(found)


class Sizes:
    """The sizes that one function needs.

    Attributes:
      used: (array, dimension) -> name, of the sizes that were asked for.
    """

    def __init__(
        self, arrays: dict[str, list[Any]], names: dict[tuple[str, int], str], taken: set[str]
    ):
        self.given: dict[Any, tuple[str, int]] = {}
        for array, shape in arrays.items():
            for dim, size in enumerate(shape):
                if not isinstance(found := symbolic(size), int):
                    self.given.setdefault(found, (array, dim))
        self.arrays, self.names, self.taken = arrays, names, set(taken)
        self.used: dict[tuple[str, int], str] = {}
        self.asked: dict[Any, str] | None = None  # sizes that the caller has to tell
        self.inline = False  # whether sizes have no names, as in a lambda

    def __call__(self, size: Any) -> ast.expr:
        """The size as an expression.

        Raises:
          NotImplementedError: it is made of sizes that no input has.
        """
        found = symbolic(size)
        if isinstance(found, (int, float, bool)) or getattr(found, "is_number", False):
            return expression(_number(found))
        return ast.parse(self._text(found), mode="eval").body

    def static(self, name: str) -> int | None:
        """The number that the author's name for a size stands for, if it is one."""
        for (array, dim), called in self.names.items():
            if called == name and array in self.arrays and -1 <= dim < len(self.arrays[array]):
                size = symbolic(self.arrays[array][dim])
                taken = name in self.taken and self.used.get(self._place(array, dim)) != name
                return size if isinstance(size, int) and not taken else None
        return None

    def same(self, dim: int, size: int) -> ast.expr | None:
        """The name of an argument's size that is this number, in this dimension."""
        if self.inline:
            return None
        for array, shape in self.arrays.items():
            if dim < len(shape) - 1 and symbolic(shape[dim]) == size:
                return ast.Name(self._name(array, dim), ast.Load())
        return None

    def named(self, name: str) -> None:
        """Has the function take this size."""
        for (array, dim), called in self.names.items():
            if called == name and array in self.arrays:
                self._name(*self._place(array, dim))
                return

    def _place(self, array: str, dim: int) -> tuple[str, int]:
        return array, dim % len(self.arrays[array])

    def _text(self, found: Any) -> str:
        if found in self.given:
            return self._name(*self.given[found])
        if found.is_Mul and (known := self._multiple(found)):
            return known
        if found.is_Symbol:
            if self.asked is None:
                raise NotImplementedError(f"the size {found}, which no input has")
            if found not in self.asked:  # the caller knows it
                name = next(n for n in self._free("length") if n not in self.asked.values())
                self.taken.add(name)
                self.asked[found] = name
            return self.asked[found]
        if found.is_number:
            return repr(_number(found))
        parts = [f"({self._text(x)})" if not x.is_Atom else self._text(x) for x in found.args]
        kind = type(found).__name__
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
            return joined[kind].join(parts)
        if kind in CALLS:
            return f"{CALLS[kind]}({', '.join(parts)})"
        raise NotImplementedError(f"a size computed by {kind}")

    def _multiple(self, found: Any) -> str | None:
        """The size as a multiple of one that an input has, as ``batch * length`` of rows is."""
        for size in self.given:
            rest = found / size if getattr(size, "is_Mul", False) else None
            if rest is not None and rest.is_Integer:
                return f"{rest} * {self._name(*self.given[size])}"
        return None

    def _free(self, name: str):
        while True:
            if name not in self.taken:
                yield name
            name += "_"

    def _name(self, array: str, dim: int) -> str:
        if self.inline:
            return f"{array}.shape[{dim}]"
        if (array, dim) not in self.used:
            rank = len(self.arrays[array])
            names = DEFAULTS.get(rank, [f"size_{i}" for i in range(rank)])
            name = self.names.get((array, dim)) or self.names.get((array, dim - rank)) or names[dim]
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            self.used[array, dim] = name
        return self.used[array, dim]

    def header(self) -> list[ast.stmt]:
        """``batch, length = x.shape[:2]`` for what was used."""
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
