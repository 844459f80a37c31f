"""Loops and branches rewritten as functions that a program can choose from.

.. code-block:: python

    while error > tolerance:
        x, error = step(x)

becomes

.. code-block:: python

    def test(x, error): return error > tolerance
    def body(x, error):
        x, error = step(x)
        return True, locals()
    x, error = run.loop((test, body), ...)
"""

from __future__ import annotations

import ast
import copy
import inspect
import linecache
import symtable
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias

from anyjax.torch.data_dependent import returns
from anyjax.torch.data_dependent.source_line import ORIGINAL

RUNTIME = "from anyjax.torch.control_flow import statements as _anyjax_run"
TEST, BODY, ELSE, RUN = "_anyjax_test", "_anyjax_body", "_anyjax_else", "_anyjax_run"
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# Not in a body: they leave the function, or their names belong to another one.
REFUSED = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete)
Statement: TypeAlias = "ast.While | ast.For | ast.If"


def function_of(code: CodeType) -> ast.FunctionDef | None:
    """Returns the source of a function as a tree, None where there is none that gives its code."""
    first = code.co_firstlineno
    lines = linecache.getlines(code.co_filename)[first - 1 :]
    if code.co_name.startswith("<") or not lines:
        return None
    try:
        tree = ast.parse(textwrap.dedent("".join(inspect.getblock(lines)))).body[0]
    except (SyntaxError, IndexError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, first - 1)
    tree.decorator_list, tree.returns = [], None
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    rebuilt = compiled(tree, code)
    return tree if rebuilt is not None and spoken(rebuilt) == spoken(code) else None


def spoken(code: CodeType) -> tuple:
    """Returns what a function's code speaks of: the instructions also depend on the module's."""
    constants = [repr(x) for x in code.co_consts if not isinstance(x, CodeType)]
    return code.co_varnames, {*code.co_names}, code.co_cellvars, constants


def compiled(tree: ast.FunctionDef, code: CodeType) -> CodeType | None:
    """Returns the code of a function, with the free variables of ``code``."""
    arguments = ast.arguments([], [ast.arg(x) for x in code.co_freevars], None, [], [], None, [])
    defaults = tree.args.defaults, tree.args.kw_defaults
    tree.args.defaults = [ast.Constant(None) for _ in tree.args.defaults]
    tree.args.kw_defaults = [x and ast.Constant(None) for x in tree.args.kw_defaults]
    outside = ast.FunctionDef("outside", arguments, [tree], [])
    module = ast.fix_missing_locations(ast.Module([outside], []))
    flags = code.co_flags & inspect_flags()
    outer = compile(module, code.co_filename, "exec", flags, dont_inherit=True).co_consts
    tree.args.defaults, tree.args.kw_defaults = defaults
    inner = next(x for x in outer if isinstance(x, CodeType)).co_consts
    inner_code = next(
        (x for x in inner if isinstance(x, CodeType) and x.co_name == code.co_name), None
    )
    return inner_code if inner_code and inner_code.co_freevars == code.co_freevars else None


def inspect_flags() -> int:
    """Returns the bits of ``co_flags`` that ``from __future__ import`` sets."""
    import __future__

    features = (getattr(__future__, name) for name in __future__.all_feature_names)
    return sum({x.compiler_flag for x in features})


@lru_cache(None)
def rewritten(code: CodeType, lines: frozenset[int]) -> CodeType | None:
    """Returns the code of a function with the statements on these lines as functions, None where
    one of them can be none.
    """
    tree = function_of(code)
    if tree is None:
        return None
    tree.body = returns.joined(tree.body, lines)
    ast.fix_missing_locations(tree)
    writer = Writer(tree, lines)
    try:
        tree.body = [*ast.parse(RUNTIME).body, *writer.statements(tree.body)]
    except Unwritable:
        return None
    new = compiled(tree, code)
    if new is not None:
        pending = [new]
        for each in pending:
            ORIGINAL[each] = code
            pending += [x for x in each.co_consts if isinstance(x, CodeType)]
    return new


class Unwritable(Exception):
    """A statement does what a function's body cannot do."""


def nodes_of(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yields the nodes of a statement's body that no loop or function in it owns."""
    pending: list[ast.AST] = [*body]
    for node in pending:
        yield node
        if not isinstance(node, (*SCOPES, ast.While, ast.For)):
            pending += ast.iter_child_nodes(node)


def within(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yields the nodes of a statement's body that run in its function."""
    pending: list[ast.AST] = [*body]
    for node in pending:
        yield node
        if not isinstance(node, SCOPES):
            pending += ast.iter_child_nodes(node)


class Writer(ast.NodeTransformer):
    """Writes the statements of a function as calls."""

    def __init__(self, tree: ast.FunctionDef, lines: frozenset[int]):
        self.lines = lines
        names = (x for x in ast.walk(tree) if isinstance(x, ast.Name))
        self.loads = [x for x in names if isinstance(x.ctx, ast.Load)]

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Returns statements with those on the lines among them rewritten."""
        out: list[ast.stmt] = []
        for statement in body:
            new: Any = self.visit(statement)
            out += new if isinstance(new, list) else [new]
        return out

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef  # type: ignore

    def visit_While(self, node: ast.While) -> Any:
        if node.lineno not in self.lines:
            return self.inside(node)
        test = ast.Return(truth(node.test))
        return self.call(node, "loop", {TEST: [test], BODY: self.turn(node)}, [])

    def visit_For(self, node: ast.For) -> Any:
        if node.lineno not in self.lines:
            return self.inside(node)
        match node.iter, node.target:
            case ast.Call(ast.Name("range"), args, []), ast.Name(name):
                ends = [integer(x) for x in args]
                return self.call(node, "turns", {BODY: self.turn(node)}, ends, name)
        raise Unwritable

    def visit_If(self, node: ast.If) -> Any:
        if node.lineno not in self.lines:
            return self.inside(node)
        nodes = [*nodes_of([node])]
        outer = not hasattr(node, "returns") and any(map(returns.leaves, nodes))
        if outer or any(isinstance(x, (ast.Break, ast.Continue, End)) for x in nodes):
            raise Unwritable  # of the loop or branch around it
        ways = {BODY: node.body, ELSE: node.orelse}
        bodies = {name: self.body(x) for name, x in ways.items()}
        return self.call(node, "branch", bodies, [truth(node.test)])

    def inside(self, node: Statement) -> Statement:
        node.body, node.orelse = self.statements(node.body), self.statements(node.orelse)
        return node

    def turn(self, loop: ast.While | ast.For) -> list[ast.stmt]:
        """Returns the statements of a turn of a loop."""
        if loop.orelse:
            raise Unwritable
        body: list[Any] = []
        for statement in copy.deepcopy(loop.body):
            new = Ends().visit(statement)
            body += new if isinstance(new, list) else [new]
        return self.body(body)

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Returns the body of a function."""
        module = Sums().visit(ast.Module(copy.deepcopy(statements), []))
        return [*self.statements(module.body), *ends(True)]

    def call(
        self,
        statement: Statement,
        function: str,
        bodies: dict[str, list[ast.stmt]],
        arguments: list[ast.expr],
        target: str = "",
    ) -> list[ast.stmt]:
        """Returns the statements that take the place of one."""
        inner = [*statement.body, *statement.orelse]
        nodes = [*within(inner)]
        uses_super = any(isinstance(x, ast.Name) and x.id == "super" for x in nodes)
        returns_inside = not isinstance(statement, ast.If) and any(map(returns.leaves, nodes))
        if (
            uses_super
            or returns_inside
            or any(isinstance(x, REFUSED) and not added(x) for x in nodes)
        ):
            raise Unwritable
        names = sorted({*assigned(inner), *([target] if target else [])})
        span = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        later = {x.id for x in self.loads if x.lineno not in span}
        facts = names, tuple(x for x in names if x in later), target
        places = [f"({base}, {name!r})" for base, name in attributes(nodes, names)]
        results = "".join(f"{name}, " for name in names)
        functions = "".join(f"def {name}({', '.join(names)}): pass\n" for name in bodies)
        unset = "".join(f"\nif {name} is {RUN}.UNSET: del {name}" for name in names)
        text = f"""{functions}
{results + "= " if names else ""}{RUN}.{function}(
    ({", ".join(bodies)},), locals(), {facts!r}, [{", ".join(places)}], []
){unset}"""
        out = ast.parse(text).body
        for function_node, body in zip(out, bodies.values()):
            function_node.body = body  # type: ignore[attr-defined]
        call = out[len(bodies)].value  # type: ignore[attr-defined]
        call.args[-1] = ast.List(arguments, ast.Load())
        for each in out:
            for node in ast.walk(each):
                if not hasattr(node, "lineno") or node.lineno < statement.lineno:
                    ast.copy_location(node, statement)
        return out


def integer(end: ast.expr) -> ast.expr:
    """Returns the end of a range that may be a number of the program."""
    match end:
        case ast.Call(ast.Name("int"), [value], []):
            function = ast.Attribute(ast.Name(RUN, ast.Load()), "integer", ast.Load())
            return ast.copy_location(ast.Call(function, [value], []), end)
    return end


def truth(test: ast.expr) -> ast.expr:
    """Returns a test whose ``and``, ``or`` and ``not`` take what only the program knows."""
    if any(isinstance(x, (ast.NamedExpr, ast.Await, ast.Yield)) for x in ast.walk(test)):
        return test
    run = lambda name: ast.Attribute(ast.Name(RUN, ast.Load()), name, ast.Load())
    match test:
        case ast.UnaryOp(ast.Not(), operand):
            return ast.copy_location(ast.Call(run("negated"), [truth(operand)], []), test)
        case ast.BoolOp(op, values):
            nothing = ast.arguments([], [], None, [], [], None, [])
            tests: list[ast.expr] = [ast.Lambda(nothing, truth(x)) for x in values]
            name = "every" if isinstance(op, ast.And) else "either"
            return ast.copy_location(ast.Call(run(name), tests, []), test)
    return test


class Ends(ast.NodeTransformer):
    """Writes ``break`` and ``continue`` of a loop as the ends of its body."""

    def visit_Break(self, node: ast.Break) -> Any:
        return [ast.copy_location(x, node) for x in ends(False)]

    def visit_Continue(self, node: ast.Continue) -> Any:
        return [ast.copy_location(x, node) for x in ends(True)]

    def visit_While(self, node: ast.While) -> ast.AST:
        return node

    visit_For = visit_FunctionDef = visit_AsyncFunctionDef = visit_While  # type: ignore
    visit_Lambda = visit_ClassDef = visit_While  # type: ignore


class Sums(ast.NodeTransformer):
    """Writes ``n += 1`` so that a number, which a tensor stands for, is not written to."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        name = ast.Name(node.target.id, ast.Load())
        value = ast.Call(ast.Attribute(ast.Name(RUN, ast.Load()), "number", ast.Load()), [name], [])
        first = ast.Assign([ast.Name(node.target.id, ast.Store())], value)
        return [ast.copy_location(first, node), node]  # type: ignore[return-value]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef  # type: ignore


class End(ast.Return):
    """The end of a turn."""

    _fields = ast.Return._fields


def ends(goes_on: bool) -> list[ast.stmt]:
    """Returns the end of a turn: whether there may be another, and the names that it gave."""
    return [End(ast.parse(f"{goes_on}, locals()").body[0].value)]  # type: ignore


def added(node: ast.AST) -> bool:
    """Returns whether a ``return`` is the end of a turn or of a way."""
    return isinstance(node, End) or returns.leaves(node)


def assigned(body: list[ast.stmt]) -> set[str]:
    """Returns the names that a statement's body gives a value, or whose elements it writes."""
    loop = ast.While(ast.Constant(True), body or [ast.Pass()], [])
    text = ast.unparse(ast.fix_missing_locations(ast.Module([loop], [])))
    source = "def f():\n" + textwrap.indent(text, " ")
    table = symtable.symtable(source, "loop", "exec").get_children()[0]
    names = {x.get_name() for x in table.get_symbols() if x.is_assigned() or x.is_imported()}
    return names | {base for x in within(body) if (base := written(x))}


def written(node: ast.AST) -> str:
    """Returns the name of what ``x[i] = y``, ``x.add_(y)`` or ``x.diagonal().add_(y)`` writes to,
    "" for all else.
    """
    match node:
        case ast.Subscript(value, ctx=ast.Store()):
            return _viewed(value)
        case ast.Call(ast.Attribute(value, method)):
            if method.endswith("_") and not method.endswith("__"):
                return _viewed(value)
    return ""


def _viewed(node: ast.expr) -> str:
    """Returns the name of what an expression may be a view of."""
    while True:
        match node:
            case ast.Name(name):
                return name
            case ast.Subscript(value) | ast.Call(ast.Attribute(value)):
                node = value
            case _:
                return ""


def attributes(nodes: list[ast.AST], names: list[str]) -> list[tuple[str, str]]:
    """Returns the attributes that statements give a value: (the object's expression, the name)."""
    places: dict[tuple[str, str], None] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            expression = [*ast.walk(node.value)]
            bases = {x.id for x in expression if isinstance(x, ast.Name)}
            simple = all(isinstance(x, (ast.Name, ast.Attribute, ast.Load)) for x in expression)
            if not simple or bases & {*names} or isinstance(node.ctx, ast.Del):
                raise Unwritable
            places[ast.unparse(node.value), node.attr] = None
    return [*places]
