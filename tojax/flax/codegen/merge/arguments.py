"""Functions that take different arguments as one: what some are not given is None there."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import Any

from tojax.flax.codegen.python.join_branches import Guard, text_of
from tojax.flax.codegen.python.sizes import Sizes, symbolic
from tojax.flax.codegen.python.templates import expression, name_of


@dataclass(frozen=True)
class Served:
    """A function: its parameters, its body, the sizes that it takes of them."""

    parameters: list[str]
    body: list[ast.stmt]
    sizes: Sizes


@dataclass(eq=False)
class Arguments:
    """What one function takes that does what each of these does.

    Attributes:
      order: its parameters, those that every function has first.
      optional: those that some lack.
      instead: what an optional one is where it is not given, if that is another one.
      bodies: those of the functions, in each other's words where these say the same.
    """

    kinds: list[Served]
    order: list[str] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)
    instead: dict[str, str] = field(default_factory=dict)
    bodies: list[list[ast.stmt]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for kind in sorted(self.kinds, key=lambda x: -len(x.parameters)):
            before = 0
            for name in kind.parameters:
                if name not in self.order:
                    self.order.insert(before, name)
                before = self.order.index(name) + 1
        self.optional = {n for n in self.order if any(n not in x.parameters for x in self.kinds)}
        self.order.sort(key=lambda n: n in self.optional)
        for name in self.order:
            if name in self.optional and (other := self._instead(name)):
                self.instead[name] = other
        self.bodies = [self._body(x) for x in self.kinds]

    def tests(self) -> list[Guard]:
        """Whether an argument is given."""
        names = [x for x in self.order if x in self.optional and x not in self.instead]
        lacks = lambda name: [*(name not in x.parameters for x in self.kinds)]
        return [Guard(f"{x} is None", f"{x} is not None", lacks(x), x) for x in names]

    def defaults(self) -> list[ast.stmt]:
        """``if key_value_states is None: key_value_states = hidden_states``"""
        text = "if {0} is None:\n    {0} = {1}"
        return [ast.parse(text.format(x, y)).body[0] for x, y in self.instead.items()]

    def _instead(self, name: str) -> str | None:
        """The argument in whose place others have this one; None if it is in none's."""
        found = set()
        for kind in (x for x in self.kinds if name not in x.parameters):
            if name in _stored(kind.body):
                return None
            counts = {q: self._same(kind, name, q) for q in (None, *kind.parameters)}
            found.add(max(counts, key=lambda x: counts[x]))
        return found.pop() if len(found) == 1 else None

    def _same(self, kind: Served, name: str, other: str | None) -> int:
        """How many statements that read an argument say this in these words."""
        texts = {text_of([s]) for s in kind.body}
        words = {name: other}
        count = 0
        for one in (x for x in self.kinds if name in x.parameters):
            said = [s for s in one.body if name in _loaded(s)]
            count += sum(text_of([self._in_words(s, one, kind, words)]) in texts for s in said)
        return count

    def _in_words(self, statement: ast.stmt, one: Served, kind: Served,
                  words: dict[str, str | None]) -> ast.stmt:  # fmt: skip
        """A statement of one function in the words of another."""
        names: dict[str, ast.expr] = {
            x: ast.Constant(None) if y is None else name_of(y) for x, y in words.items()
        }
        for (array, dim), size in one.sizes.used.items():
            array = words.get(array, array) or ""
            known = _size(kind.sizes, array, dim) if array in kind.sizes.arrays else None
            if known is not None and size not in kind.sizes.used.values():
                names[size] = known
        return changed(statement, _Words(names))

    def _body(self, kind: Served) -> list[ast.stmt]:
        """That of a function, with the statements of others that say the same."""
        words = {x: self.instead.get(x) for x in self.order if x not in kind.parameters}
        found, stored = [], set[str]()
        more: dict[str, ast.stmt] = {}
        said: dict[frozenset, dict[str, tuple[Served, ast.stmt]]] = {}
        for mine in self._with_heads(kind):
            usable = {x: y for x, y in words.items() if x not in stored}
            key = frozenset(usable)
            if key not in said:
                said[key] = self._said(kind, usable) if usable else {}
            if text_of([mine]) in said[key]:
                one, theirs = said[key][text_of([mine])]
                more |= _heads(theirs, one, kind)
                mine = changed(theirs, _Words({}))
            found.append(mine)
            stored |= _stored([mine])
        header = len(kind.sizes.header())
        return [*found[:header], *more.values(), *found[header:]]

    def _with_heads(self, kind: Served) -> list[ast.stmt]:
        """Its body; where another function takes more sizes of an array, as that one takes them."""
        found = []
        for mine in kind.body:
            array = _array(mine)
            same = [s for x in self.kinds for s in x.sizes.header() if array and _array(s) == array]
            more = [s for s in same if _stored([s]) > _stored([mine])]
            alone = all(len(_stored([s])) > 1 for s in more)
            found.append(max(more, key=lambda s: len(_stored([s]))) if more and alone else mine)
        return found

    def _said(self, kind: Served, words: Any) -> dict[str, tuple[Served, ast.stmt]]:
        """What statements of others that read these arguments are in the words of a function."""
        found: dict[str, tuple[Served, ast.stmt]] = {}
        for one in (x for x in self.kinds if x is not kind):
            for s in one.body:
                if _loaded(s) & set(words) & set(one.parameters):
                    text = text_of([self._in_words(s, one, kind, words)])
                    found.setdefault(text, (one, s))
        return found


def _array(statement: ast.stmt) -> str:
    """The array whose sizes a statement takes: x of ``batch, length = x.shape[:2]``."""
    match statement:
        case (
            ast.Assign(value=ast.Attribute(value=ast.Name(id=name), attr="shape"))
            | ast.Assign(
                value=ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"))
            )
        ):
            return name
    return ""


def changed(statement: ast.stmt, by: ast.NodeTransformer) -> ast.stmt:
    """A copy, changed."""
    found = copy.deepcopy(statement)
    found.__dict__.pop("text", None)
    return by.visit(found)


def _heads(statement: ast.stmt, one: Served, kind: Served) -> dict[str, ast.stmt]:
    """The lines that give names to the sizes in a statement that another function lacks."""
    known = {x for s in kind.body for x in _stored([s])}
    wanted = {x for x in _loaded(statement) if x in one.sizes.used.values() and x not in known}
    return {text_of([s]): s for s in one.sizes.header() if wanted & _stored([s])}


def _size(sizes: Sizes, array: str, dim: int) -> ast.expr | None:
    """What a function calls a size."""
    if dim >= len(sizes.arrays[array]):
        return None
    found = symbolic(sizes.arrays[array][dim])
    if isinstance(found, int):
        return expression(found)
    name = sizes.used.get(sizes.given.get(found, ("", 0)))
    return name_of(name) if name else None


class _Words(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.expr]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.names.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if hasattr(node, "callee"):
            nothing = lambda x: isinstance(x, ast.Constant) and x.value is None
            node.keywords = [x for x in node.keywords if not nothing(x.value)]
        return node


def _loaded(statement: ast.stmt) -> set[str]:
    names = (x for x in ast.walk(statement) if isinstance(x, ast.Name))
    return {x.id for x in names if isinstance(x.ctx, ast.Load)}


def _stored(body: list[ast.stmt]) -> set[str]:
    names = (x for s in body for x in ast.walk(s) if isinstance(x, ast.Name))
    return {x.id for x in names if isinstance(x.ctx, ast.Store)}
