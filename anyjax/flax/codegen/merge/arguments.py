"""Functions with different parameters as one function; missing arguments are None."""

from __future__ import annotations

import ast
import copy
import functools
from dataclasses import dataclass, field

from anyjax.flax.codegen.python.join_branches import Guard, text_of
from anyjax.flax.codegen.python.sizes import Sizes, symbolic
from anyjax.flax.codegen.python.syntax import name_of, names_loaded, names_stored
from anyjax.flax.codegen.python.templates import expression


@dataclass(frozen=True)
class FunctionCode:
    """A function: its parameters, its body, the names of its arguments' sizes."""

    parameters: list[str]
    body: list[ast.stmt]
    sizes: Sizes


@dataclass(eq=False)
class JoinedArguments:
    """The parameters of one function that stands for several.

    Attributes:
      order: its parameters, those that every function has first.
      optional: parameters that some functions lack.
      default_arguments: for an optional parameter, the parameter that is its default.
      bodies: the functions' bodies, equal statements written alike.
    """

    functions: list[FunctionCode]
    order: list[str] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)
    default_arguments: dict[str, str] = field(default_factory=dict)
    bodies: list[list[ast.stmt]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for function in sorted(self.functions, key=lambda x: -len(x.parameters)):
            position = 0
            for name in function.parameters:
                if name not in self.order:
                    self.order.insert(position, name)
                position = self.order.index(name) + 1
        self.optional = {
            n for n in self.order if any(n not in x.parameters for x in self.functions)
        }
        self.order.sort(key=lambda n: n in self.optional)
        for name in self.order:
            if name in self.optional and (default := self._default_argument(name)):
                self.default_arguments[name] = default
        self.bodies = [self._body_of(x) for x in self.functions]

    def tests(self) -> list[Guard]:
        """Returns the tests of whether an argument is given."""
        names = [x for x in self.order if x in self.optional and x not in self.default_arguments]
        lacks = lambda name: [*(name not in x.parameters for x in self.functions)]
        return [Guard(f"{x} is None", f"{x} is not None", lacks(x), x) for x in names]

    def defaults(self) -> list[ast.stmt]:
        """Returns ``if key_value_states is None: key_value_states = hidden_states``."""
        text = "if {0} is None:\n    {0} = {1}"
        return [ast.parse(text.format(x, y)).body[0] for x, y in self.default_arguments.items()]

    def _default_argument(self, name: str) -> str | None:
        """Returns the argument that others have in this one's place; None if there is none."""
        candidates = set()
        for function in (x for x in self.functions if name not in x.parameters):
            if name in names_stored(*function.body):
                return None
            count = functools.partial(self._num_matching, function, name)
            candidates.add(max((None, *function.parameters), key=count))
        return candidates.pop() if len(candidates) == 1 else None

    def _num_matching(self, target: FunctionCode, name: str, replacement: str | None) -> int:
        """Counts the statements that read an argument and that the target has after translation."""
        texts = {text_of([s]) for s in target.body}
        replacements = {name: replacement}
        count = 0
        for source in (x for x in self.functions if name in x.parameters):
            reading = [s for s in source.body if name in names_loaded(s)]
            translated = [self._translated(s, source, target, replacements) for s in reading]
            count += sum(text_of([s]) in texts for s in translated)
        return count

    def _translated(self, statement: ast.stmt, source: FunctionCode, target: FunctionCode,
                  replacements: dict[str, str | None]) -> ast.stmt:  # fmt: skip
        """Returns a statement of one function in the names of another."""
        names: dict[str, ast.expr] = {
            x: ast.Constant(None) if y is None else name_of(y) for x, y in replacements.items()
        }
        for (array, dim), size in source.sizes.used.items():
            array = replacements.get(array, array) or ""
            size_expr = _size_expression(target.sizes, array, dim)
            if size_expr is not None and size not in target.sizes.used.values():
                names[size] = size_expr
        return changed_copy(statement, _Replacements(names))

    def _body_of(self, target: FunctionCode) -> list[ast.stmt]:
        """Returns a function's body, with equal statements as the others write them."""
        replacements = {
            x: self.default_arguments.get(x) for x in self.order if x not in target.parameters
        }
        statements, stored = [], set[str]()
        size_lines: dict[str, ast.stmt] = {}
        translations: dict[frozenset, dict[str, tuple[FunctionCode, ast.stmt]]] = {}
        for translated in self._with_heads(target):
            usable = {x: y for x, y in replacements.items() if x not in stored}
            key = frozenset(usable)
            if key not in translations:
                translations[key] = self._translations(target, usable) if usable else {}
            if text_of([translated]) in translations[key]:
                source, original = translations[key][text_of([translated])]
                size_lines |= _missing_size_lines(original, source, target)
                translated = changed_copy(original, _Replacements({}))
            statements.append(translated)
            stored |= names_stored(translated)
        header = len(target.sizes.header())
        return [*statements[:header], *size_lines.values(), *statements[header:]]

    def _with_heads(self, target: FunctionCode) -> list[ast.stmt]:
        """Returns a function's body, with the header that names most sizes of an array."""
        statements = []
        for statement in target.body:
            array = _array(statement)
            heads = [
                s for x in self.functions for s in x.sizes.header() if array and _array(s) == array
            ]
            longer = [s for s in heads if names_stored(s) > names_stored(statement)]
            if all(len(names_stored(s)) > 1 for s in longer):
                statement = max([statement, *longer], key=lambda s: len(names_stored(s)))
            statements.append(statement)
        return statements

    def _translations(
        self, target: FunctionCode, replacements: dict[str, str | None]
    ) -> dict[str, tuple[FunctionCode, ast.stmt]]:
        """Returns other functions' statements that read these arguments, by translated text."""
        translations: dict[str, tuple[FunctionCode, ast.stmt]] = {}
        for source in (x for x in self.functions if x is not target):
            for s in source.body:
                if names_loaded(s) & set(replacements) & set(source.parameters):
                    text = text_of([self._translated(s, source, target, replacements)])
                    translations.setdefault(text, (source, s))
        return translations


def _array(statement: ast.stmt) -> str:
    """Returns ``x`` of a statement ``batch, length = x.shape[:2]``, "" of others."""
    match statement:
        case ast.Assign(value=ast.Subscript(value=value) | value):
            match value:
                case ast.Attribute(value=ast.Name(id=name), attr="shape"):
                    return name
    return ""


def changed_copy(statement: ast.stmt, transformer: ast.NodeTransformer) -> ast.stmt:
    """Returns a transformed copy of a statement."""
    copied = copy.deepcopy(statement)
    copied.__dict__.pop("text", None)
    return transformer.visit(copied)


def _missing_size_lines(
    statement: ast.stmt, source: FunctionCode, target: FunctionCode
) -> dict[str, ast.stmt]:
    """Returns the lines for sizes in a statement that another function does not name."""
    assigned = names_stored(*target.body)
    needed = {
        x for x in names_loaded(statement) if x in source.sizes.used.values() and x not in assigned
    }
    return {text_of([s]): s for s in source.sizes.header() if needed & names_stored(s)}


def _size_expression(sizes: Sizes, array: str, dim: int) -> ast.expr | None:
    """Returns a function's name for a size of an array, if it has that."""
    if dim >= len(sizes.arrays.get(array, ())):
        return None
    size = symbolic(sizes.arrays[array][dim])
    if isinstance(size, int):
        return expression(size)
    name = sizes.used.get(sizes.sources.get(size, ("", 0)))
    return name_of(name) if name else None


class _Replacements(ast.NodeTransformer):
    """Replaces variables by expressions."""

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
