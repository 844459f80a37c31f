"""The one table of every frontend: operator -> lowering, checked against the framework's own
schema.

A frontend supplies ``read(op) -> Signature``, ``overloads(key) -> [op, ...]`` and ``family(key)``,
which an operator has in common with the keys that stand for it. Everything else follows from the
schema: which arguments a lowering sees, in what order, their defaults, and whether it takes a
random key.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyjax.errors import TableError, Unsupported

if TYPE_CHECKING:
    import jax

    from anyjax.typing import F

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Param:
    """One argument of an operator; ``kind`` is "array", "arrays", "dtype", "dropped" or "value".

    Example:
      >>> Param("dim", "value", default=-1).default
      -1
    """

    name: str
    kind: str
    default: Any = REQUIRED


@dataclass(frozen=True)
class Signature:
    """A schema: ``writes`` names the arguments that are written, ``random`` asks for a key.

    Example:
      >>> params = Param("x", "array"), Param("p", "value", 0.5), Param("device", "dropped")
      >>> Signature("dropout", params, "dropout(x, p, device)", random=True).kept
      ['rng', 'x', 'p']
    """

    name: str
    params: tuple[Param, ...]
    text: str
    random: bool = False
    writes: tuple[str, ...] = ()

    @property
    def kept(self) -> list[str]:
        """The names that a lowering declares, in order."""
        names = [p.name for p in self.params if p.kind != "dropped"]
        return ["rng", *names] if self.random else names


@dataclass(frozen=True, eq=False)
class Row:
    """An operator with its lowering; ``undeclared`` are the schema's last parameters, which the
    lowering does not know.
    """

    op: Any
    signature: Signature
    lowering: Callable[..., Any]
    undeclared: tuple[Param, ...] = ()


class Table(Mapping[Any, Row]):
    """op -> Row. Adding a lowering whose parameters differ from the schema raises TableError:
    their names, or only their number where they are positional-only.

    Rows that are added while the table is ``deferred`` serve any version of the framework. A last
    parameter that only some versions have is declared positional-only with a default. One that the
    lowering does not declare is served at the schema's own default; any other value of it raises
    Unsupported.

    Example:
      >>> read = lambda op: Signature(op, (Param("x", "array"),), f"{op}(x)")
      >>> table = Table("toy", read, lambda key: [key])
      >>> @table.lowers("neg")
      ... def neg(x):
      ...     return -x
      >>> table["neg"].lowering(2), list(table)
      (-2, ['neg'])
    """

    def __init__(
        self,
        name: str,
        read: Callable[[Any], Signature],
        overloads: Callable[[Any], Iterable[Hashable]],
        family: Callable[[Any], Hashable] = lambda key: key,
    ):
        self.name: str = name
        self.read, self.overloads, self.family = read, overloads, family
        self._rows: dict[Hashable, Row] = {}
        self._later: dict[str, Callable[..., Any]] = {}
        self._deferred: dict[Hashable, list[tuple[Any, Callable[..., Any]]]] = {}
        self._deferring = False
        self.users: set[Hashable] = set()  # operators whose rows were not deferred
        self.version = 0  # another one whenever a row was added

    def __getitem__(self, op: Hashable) -> Row:
        return self._all()[op]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[Hashable, Row]:
        while self._deferred:
            self._settle(next(iter(self._deferred)))
        return self._rows

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defers rows that are added in here until one of their operators is met: reading all of
        torch's schemas takes as long as tracing a model. A test reads all of them.

        Example:
          >>> read = lambda op: Signature(op, (Param("x", "array"),), f"{op}(x)")
          >>> table = Table("toy", read, lambda key: [key])
          >>> with table.deferred():
          ...     table.update({"neg": lambda x: -x})  # reads no schema
          >>> table.find("neg").signature.text
          'neg(x)'
        """
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    def lowers(self, *keys: Any) -> Callable[[F], F]:
        """Makes a function the lowering of these operators, as a decorator.

        Raises:
          TableError: an operator is unknown, or its schema has other parameters.

        Example:
          >>> @anyjax.stablehlo.lowers("mine.double")
          ... def double(x):
          ...     return 2 * x
          >>> double(3)
          6
        """

        def add(function: F) -> F:
            self.update(dict.fromkeys(keys, function))
            return function

        return add

    def update(self, rows: Mapping[Any, Callable[..., object]]) -> None:
        """Adds rows; a later row for the same operator wins, so that users may replace ours.

        A key that is a string names an operator that may not be registered yet; ``find`` adds the
        row when it is met.

        Raises:
          TableError: a schema has other parameters than its lowering.

        Example:
          >>> read = lambda op: Signature(op, (Param("x", "array"),), f"{op}(x)")
          >>> table = Table("toy", read, lambda key: [key])
          >>> table.update({"neg": lambda x: -x, "twice": lambda x: 2 * x})
          >>> [table[op].lowering(3) for op in table]
          [-3, 6]
        """
        for key, function in rows.items():
            if isinstance(key, str) and key not in self.overloads(key):
                self._later[key] = function
                self.version += 1
            elif self._deferring:
                self._deferred.setdefault(self.family(key), []).append((key, function))
            else:
                self._settle(self.family(key))
                self._add(key, function)

    def _settle(self, family: Hashable) -> None:
        for key, function in self._deferred.pop(family, ()):
            self._add(key, function, any_version=True)

    def _add(self, key: jax.Array, function: Callable, any_version: bool = False) -> None:
        self.version += 1
        ops = list(self.overloads(key))
        if not ops:
            raise TableError(
                f"{key} has no overload that could be lowered",
                do="name one of its functional overloads",
            )
        for op in ops:
            signature = self.read(op)
            undeclared = _undeclared(signature, function) if any_version else ()
            if undeclared:
                function = _at_defaults(signature, function, undeclared)
            else:
                check(signature, function)
            self._rows[op] = Row(op, signature, function, undeclared)
            self.users.update(() if any_version else (op,))

    def find(self, op: Hashable) -> Row | None:
        """Returns the row of an operator, None if there is none."""
        if op not in self._rows and self._deferred:
            self._settle(self.family(op))
        if op not in self._rows and self._later:
            function = self._later.get(self.read(op).name.rpartition(".")[0])
            if function is not None:
                self.update({op: function})
        return self._rows.get(op)

    def like(self, name: str, count: int = 3) -> list[str]:
        """Names in the table that look like ``name``, for did-you-mean."""
        return difflib.get_close_matches(name, {row.signature.name for row in self.values()}, count)


def check(signature: Signature, function: Callable) -> None:
    """Raises TableError unless ``function`` takes what the schema gives, in its order."""
    where = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
    if signature.writes:
        raise TableError(
            f"{signature.name} writes its argument {signature.writes[0]!r}",
            where=where,
            why="functionalization removes such operators before the table is asked",
            do="lower the functional overload instead",
        )
    names = signature.kept
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code and code.co_argcount == len(names) and not code.co_kwonlyargcount:
        named = slice(code.co_posonlyargcount, code.co_argcount)
        if list(code.co_varnames[named]) == names[named]:
            return  # inspect.signature would say the same, a hundred times slower
    try:
        declared = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin that tells nothing of itself
    if _fits(function, declared, names):
        return
    raise TableError(
        f"the lowering of {signature.name} does not fit its schema",
        where=where,
        why=f"the schema is {signature.text}",
        do=f"declare ({', '.join(names)}), not {declared}",
    )


def _undeclared(signature: Signature, function: Callable) -> tuple[Param, ...]:
    """Returns the schema's last parameters that the lowering lacks; all have defaults."""
    try:
        declared = inspect.signature(function)
    except (TypeError, ValueError):
        return ()
    params = [p for p in signature.params if p.kind != "dropped"]
    for count in range(len(params)):
        rest = params[len(params) - count :]
        if any(p.default is REQUIRED for p in rest):
            break
        if _fits(function, declared, signature.kept[: len(signature.kept) - count]):
            return tuple(rest)
    return ()


def _at_defaults(
    signature: Signature, function: Callable, undeclared: tuple[Param, ...]
) -> Callable:
    """Returns the lowering for all of the schema's arguments, the last ones at their defaults.

    Raises:
      Unsupported: when it is called with another value of one of them.
    """

    @functools.wraps(function)
    def lowering(*arguments: Any) -> Any:
        count = len(arguments) - len(undeclared)
        for param, value in zip(undeclared, arguments[count:]):
            if value is not param.default and repr(value) != repr(param.default):
                raise Unsupported(
                    f"{signature.name} with {param.name}={value!r}",
                    why=f"the installed version has this argument, which anyjax does not know; "
                    f"it serves the default, {param.default!r}",
                    do=f"leave {param.name} out, or add a lowering of your own that takes it",
                )
        return function(*arguments[:count])

    return lowering


def _fits(function: Callable, found: inspect.Signature, wanted: list[str]) -> bool:
    """Names count, but for those of positional-only parameters and of a library's functions."""
    try:
        bound = found.bind(*wanted).arguments
    except TypeError:
        return False
    library = str(getattr(function, "__module__", "")).split(".")[0] in ("jax", "numpy", "jaxlib")
    named = [p.name for p in found.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return library or all(bound.get(name) == name for name in named)
