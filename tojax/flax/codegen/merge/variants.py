"""One class for modules of one PyTorch class that do different things.

Whatever tells them apart stands where the author has it: in an attribute of the module, in a
submodule that only some have, in an argument that only some are given. With these known, each path
through the code of the class is the code of one kind of its modules.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from tojax.flax.codegen.author.evaluate import Unknown, field_of, names_in
from tojax.flax.codegen.merge.arguments import Arguments, Served
from tojax.flax.codegen.merge.shared_class import Class
from tojax.flax.codegen.python.align_lines import Columns
from tojax.flax.codegen.python.join_branches import Guard, Inseparable, branched, text_of

_UNKNOWN = object()
RESERVED = {"training", "name", "parent", "scope"}  # those of all modules of torch or Flax


@dataclass(eq=False)
class United:
    """A class that serves several kinds; attributes as those of ``merging.Class``."""

    parameters: dict[str, list[Any]]
    lines: dict[str, ast.expr]
    taken: list[str]  # parameters of ``__call__``
    optional: set[str]  # those of them that are None where they are not given
    body: list[ast.stmt]


@dataclass(eq=False)
class _Flags:
    """What tells kinds apart: by name, the values that each kind's modules have."""

    classes: list[Class]
    attributes: dict[str, list[set]] = field(default_factory=dict)
    parts: dict[str, list[bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        modules = [[x.block.module for x in whole.instances] for whole in self.classes]
        for name, value in vars(modules[0][0]).items():
            if isinstance(value, (bool, str)) and name not in RESERVED and name[0] != "_":
                held = [{getattr(x, name, None) for x in kind} for kind in modules]
                if all(type(x) is type(value) for x in set().union(*held)):
                    self.attributes[name] = held
        for name in dict.fromkeys(n for x in self.classes for n in x.lines):
            has = [name in x.lines for x in self.classes]
            made = [x.lines[name] for x in self.classes if name in x.lines]
            if not all(has) and any(isinstance(x, ast.Call) for x in made):
                self.parts[name] = has

    def tests(self, inside: bool) -> list[Guard]:
        """Each as a condition, inside of the function or in the constructor."""
        found = []
        for name, held in self.attributes.items():
            known = f"self.{name}" if inside else name
            for value in sorted(set().union(*held)):
                yes, no = f"{known} == {value!r}", f"{known} != {value!r}"
                yes, no = (known, f"not {known}") if value is True else (yes, no)
                holds = [value in x if len(x) == 1 or value not in x else None for x in held]
                found += [Guard(yes, no, holds)] * (value is not False)
        for name, has in self.parts.items():
            yes, no = (f"self.{name} is {x}None" for x in ("not ", ""))
            yes, no = (yes, no) if inside else (f"has_{name}", f"not has_{name}")
            found.append(Guard(yes, no, [*has]))
        return found

    def values(self, name: str) -> list[Any]:
        """What each module's constructor is given."""
        if name in self.attributes:
            return [getattr(x.block.module, name) for k in self.classes for x in k.instances]
        has = self.parts[name.removeprefix("has_")]
        return [x for x, whole in zip(has, self.classes) for _ in whole.instances]


def united(classes: list[Class]) -> United | None:
    """The classes of one name as one; None where that is not shorter or cannot be said."""
    kinds = [Served(x.code.parameters, x.code.body, x.code.argument_sizes) for x in classes]
    arguments, flags = Arguments(kinds), _Flags(classes)
    try:
        body = branched(arguments.bodies, flags.tests(True) + arguments.tests())
        lines, parameters = _lines(classes, flags)
        body = arguments.defaults() + body
        if len(text_of(body)) > sum(len(text_of(x.code.body)) for x in classes):
            return None
        read = {x for s in body for x in names_in(s).attributes}
        for name in (x for x in flags.attributes if x in read and x not in lines):
            lines[name] = ast.Name(name, ast.Load())
            parameters[name] = flags.values(name)
    except Inseparable:
        return None
    _fields(classes)
    by_name = lambda x: any(isinstance(value, (bool, str)) for value in x[1])
    parameters = dict(sorted(parameters.items(), key=by_name))
    return United(parameters, lines, arguments.order, arguments.optional, body)


def _lines(classes: list[Class], flags: _Flags) -> tuple[dict[str, ast.expr], dict[str, list]]:
    """The constructor's lines, and its parameters with what each module gives for them."""
    lines: dict[str, ast.expr] = {}
    columns = Columns([(x.parameters, len(x.instances)) for x in classes])
    tests = flags.tests(False)
    for name in dict.fromkeys(n for x in classes for n in x.lines):
        given = columns.joined([x.lines.get(name) for x in classes])
        known = {ast.unparse(x) for x in given if x is not None}
        plain = all(x is None or not isinstance(x, (ast.Call, ast.List)) for x in given)
        if len(known) == 1 and (None not in given or plain):
            lines[name] = next(x for x in given if x is not None)
        else:
            bodies: list[list[ast.stmt]] = [[ast.Expr(x or ast.Constant(None))] for x in given]
            lines[name] = _chosen(branched(bodies, tests))
    told = {*flags.attributes, *(f"has_{x}" for x in flags.parts)}
    known = {*columns.found, *told, *(n for x in classes for n in x.parameters)}
    read = dict.fromkeys(n for x in lines.values() for n in names_in(x).parameters if n in known)
    return lines, {x: flags.values(x) if x in told else _values(x, columns, classes) for x in read}


def _values(name: str, columns: Columns, classes: list[Class]) -> list[Any]:
    """What each module gives for a parameter."""
    told = columns.found.get(name, {})
    unknown = lambda x: x.parameters.get(name, [_UNKNOWN] * len(x.instances))
    values = [v for i, x in enumerate(classes) for v in told.get(i) or unknown(x)]
    instances = [x for whole in classes for x in whole.instances]
    for i, (value, x) in enumerate(zip(values, instances)):
        if value is _UNKNOWN:
            said = (y.value for line in x.lines.values() for y in ast.walk(line)
                    if isinstance(y, ast.Constant) and getattr(y, "hint", "") == name)  # fmt: skip
            values[i] = x.scope.values.get(name, next(said, _UNKNOWN))
            if values[i] is _UNKNOWN:
                values[i] = _default(x.scope, name)
    return values


def _default(scope: Any, name: str) -> Any:
    """What a module was given that does not use it: that is not known, and a default as good."""
    try:
        return scope.parameter(name, scope.constructors[0])
    except (Unknown, IndexError) as error:
        raise Inseparable from error


def _chosen(body: list[ast.stmt]) -> ast.expr:
    """``a if test else b``"""
    match body:
        case [ast.Expr(value=value)]:
            return value
        case [ast.If(test=test, body=yes, orelse=no)]:
            return ast.IfExp(test, _chosen(yes), _chosen(no))
    raise Inseparable


def _fields(classes: list[Class]) -> None:
    """Each module's configuration has the fields that the lines of the others read."""
    instances = [x for whole in classes for x in whole.instances]
    for name in dict.fromkeys(n for x in instances for n in x.needs):
        for x in instances:
            x.needs.setdefault(name, field_of(x.scope.config, name))


def called_by_name(bodies: list[list[ast.stmt]], paths: set[str], before: list[str],
                   found: United) -> None:  # fmt: skip
    """Rewrites the calls of these modules, which gave what they take in the order of ``before``."""
    for statement, call in ((s, x) for body in bodies for s in body for x in ast.walk(s)):
        if isinstance(call, ast.Call) and getattr(call, "callee", None) in paths:
            statement.__dict__.pop("text", None)
            values = dict(zip(before, call.args))
            call.args = [values[x] for x in found.taken if x in values and x not in found.optional]
            words = [ast.keyword(x, values[x]) for x in found.taken
                     if x in found.optional and x in values]  # fmt: skip
            call.keywords = words + call.keywords
