"""Statements without what undoes itself: axes swapped there and back, sums taken apart again."""

from __future__ import annotations

import ast

from anyjax.flax.codegen.python.syntax import names_loaded, replaced_by_id

TURNED = ".transpose(0, 3, 1, 2)"  # channels from the last place to where torch has them


def plainer(body: list[ast.stmt]) -> list[ast.stmt]:
    """Simplifies statements in place; returns them without sizes that nothing reads."""
    for i, statement in enumerate(body):
        body[i] = _Channels().visit(statement)
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if pair := _pair(value):
                inner, undoing = pair
                loads, undone = _uses(body[i + 1 :], name, undoing)
                if loads and loads == len(undone):
                    statement.value = inner
                    swap = {id(x): _operand(x) for x in undone}
                    body[i + 1 :] = [replaced_by_id(s, swap) for s in body[i + 1 :]]
                    if name.startswith("cumsum"):
                        renamed = name.replace("cumsum", "counts")
                        for x in (x for s in body[i:] for x in ast.walk(s)):
                            if isinstance(x, ast.Name) and x.id == name:
                                x.id = renamed
    read = names_loaded(*body)
    return [s for s in body if not _sizes(s) or {x.id for x in _sizes(s)} & read]


def _sizes(statement: ast.stmt) -> list[ast.Name]:
    """Returns the names in ``batch, length = x.shape[:2]``; none in other statements."""
    match statement:
        case (
            ast.Assign(targets=[target], value=ast.Attribute(attr="shape"))
            | ast.Assign(targets=[target], value=ast.Subscript(value=ast.Attribute(attr="shape")))
        ):
            return [x for x in ast.walk(target) if isinstance(x, ast.Name)]
    return []


def _pair(value: ast.expr) -> tuple[ast.expr, str] | None:
    """Returns what an expression changes, and how that is undone."""
    match value:
        case ast.Call(func=ast.Attribute(attr="swapaxes", value=inner), args=[a, b]):
            return inner, f"{{}}.swapaxes({ast.unparse(a)}, {ast.unparse(b)})"
        case ast.Call(func=ast.Attribute(attr="cumsum", value=inner)) if _first(value) == "0":
            if ast.unparse(inner).startswith("jnp.bincount("):
                return inner, "jnp.diff({}, prepend=0)"
    return None


def _first(call: ast.Call) -> str:
    return ast.unparse(call.args[0]) if call.args else ""


def _uses(body: list[ast.stmt], name: str, undoing: str) -> tuple[int, list[ast.expr]]:
    """Returns how often a variable is read before it is assigned again, and where it is undone."""
    loads = 0
    undone: list[ast.expr] = []
    for statement in body:
        stored = False
        for x in ast.walk(statement):
            if isinstance(x, ast.Name) and x.id == name:
                loads += isinstance(x.ctx, ast.Load)
                stored |= isinstance(x.ctx, ast.Store)
            elif isinstance(x, ast.Call) and ast.unparse(x) == undoing.format(name):
                undone.append(x)
        if stored:
            simple = isinstance(statement, ast.Assign)
            return (loads if simple else -1), undone
    return loads, undone


def _operand(undone: ast.expr) -> ast.expr:
    """Returns ``x`` of ``x.swapaxes(1, 2)`` and of ``jnp.diff(x, prepend=0)``."""
    match undone:
        case ast.Call(func=ast.Attribute(attr="swapaxes", value=value)):
            return value
        case ast.Call(args=[value, *_]):
            return value
    raise AssertionError(ast.unparse(undone))


class _Channels(ast.NodeTransformer):
    """Channels last that are moved only to be flattened: pictures as rows of places, means."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Attribute(attr="mT", value=inner):
                return self._rows(inner) or node
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(attr="swapaxes", value=inner), args=args):
                if [ast.unparse(x) for x in args] == ["1", "2"]:
                    return self._rows(inner) or node
            case ast.Call(
                func=ast.Attribute(attr="reshape", value=ast.Call() as inner), args=[_, rest]
            ) if ast.unparse(rest) == "-1" and ast.unparse(inner).endswith(TURNED):
                return _mean(inner.func.value) or node  # type: ignore[attr-defined]
        return node

    def _rows(self, value: ast.expr) -> ast.expr | None:
        """Writes ``x.transpose(0, 3, 1, 2).reshape(b, 48, -1).mT`` as ``x.reshape(b, -1, 48)``."""
        match value:
            case ast.Call(
                func=ast.Attribute(attr="reshape", value=ast.Call() as inner),
                args=[batch, ast.Constant() as channels, rest],
            ) if ast.unparse(rest) == "-1" and ast.unparse(inner).endswith(TURNED):
                turned = inner.func.value  # type: ignore[attr-defined]
                func = ast.Attribute(turned, "reshape", ast.Load())
                return ast.Call(func, [batch, rest, channels], [])
        return None


def _mean(value: ast.expr) -> ast.expr | None:
    """Writes ``x.mean((1, 2), keepdims=True)`` over all places as ``x.mean((1, 2))``."""
    match value:
        case ast.Call(func=ast.Attribute(attr="mean" | "max"), args=[axes], keywords=[keep]):
            if ast.unparse(axes) == "(1, 2)" and ast.unparse(keep) == "keepdims=True":
                return ast.Call(value.func, [axes], [])
    return None
