"""One class for modules of one PyTorch class that do different things.

Whatever tells them apart stands where the author has it: in an attribute of the module, in a
submodule that only some have, in an argument that only some are given. With these known, each path
through the code of the class is the code of one kind of its modules.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from anyjax.flax.codegen.author.evaluate import NotExpressible, Scope, field_of, names_in
from anyjax.flax.codegen.merge.arguments import FunctionCode, JoinedArguments
from anyjax.flax.codegen.merge.shared_class import Class
from anyjax.flax.codegen.python.align_lines import Columns
from anyjax.flax.codegen.python.join_branches import Guard, Inseparable, branched, text_of

_UNKNOWN = object()
RESERVED = {"training", "name", "parent", "scope"}  # attributes of all modules of torch or Flax


@dataclass(eq=False)
class United:
    """A class that serves several kinds; ``lines`` and ``parameters`` as those of ``Class``."""

    parameters: dict[str, list[Any]]
    lines: dict[str, ast.expr]
    order: list[str]  # parameters of ``__call__``
    optional: set[str]  # parameters that are None by default
    body: list[ast.stmt]


@dataclass(eq=False)
class _Distinctions:
    """Distinctions of the kinds: by name, the values that each kind's modules have."""

    classes: list[Class]
    attributes: dict[str, list[set]] = field(default_factory=dict)
    has_submodule: dict[str, list[bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        modules = [[x.block.module for x in cls.instances] for cls in self.classes]
        for name, value in vars(modules[0][0]).items():
            if isinstance(value, (bool, str)) and name not in RESERVED and name[0] != "_":
                values_by_kind = [{getattr(x, name, None) for x in kind} for kind in modules]
                if all(type(x) is type(value) for x in set().union(*values_by_kind)):
                    self.attributes[name] = values_by_kind
        for name in dict.fromkeys(n for x in self.classes for n in x.lines):
            has_part = [name in x.lines for x in self.classes]
            lines = [x.lines[name] for x in self.classes if name in x.lines]
            if not all(has_part) and any(isinstance(x, ast.Call) for x in lines):
                self.has_submodule[name] = has_part

    def tests(self, inside: bool) -> list[Guard]:
        """Returns each as a condition, inside of the function or in the constructor."""
        guards = []
        for name, values_by_kind in self.attributes.items():
            term = f"self.{name}" if inside else name
            for value in sorted(set().union(*values_by_kind)):
                yes, no = f"{term} == {value!r}", f"{term} != {value!r}"
                yes, no = (term, f"not {term}") if value is True else (yes, no)
                holds = [
                    value in x if len(x) == 1 or value not in x else None for x in values_by_kind
                ]
                guards += [Guard(yes, no, holds)] * (value is not False)
        for name, has_part in self.has_submodule.items():
            yes, no = (f"self.{name} is {x}None" for x in ("not ", ""))
            yes, no = (yes, no) if inside else (f"has_{name}", f"not has_{name}")
            guards.append(Guard(yes, no, [*has_part]))
        return guards

    def values(self, name: str) -> list[Any]:
        """Returns each module's argument of the constructor."""
        if name in self.attributes:
            return [getattr(x.block.module, name) for k in self.classes for x in k.instances]
        has_part = self.has_submodule[name.removeprefix("has_")]
        return [x for x, cls in zip(has_part, self.classes) for _ in cls.instances]


def united(classes: list[Class]) -> United | None:
    """Returns one class for several of one name; None if that is impossible or not shorter."""
    kinds = [FunctionCode(x.code.parameters, x.code.body, x.code.argument_sizes) for x in classes]
    arguments, flags = JoinedArguments(kinds), _Distinctions(classes)
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
    _share_fields(classes)
    by_name = lambda x: any(isinstance(value, (bool, str)) for value in x[1])
    parameters = dict(sorted(parameters.items(), key=by_name))
    return United(parameters, lines, arguments.order, arguments.optional, body)


def _lines(
    classes: list[Class], flags: _Distinctions
) -> tuple[dict[str, ast.expr], dict[str, list]]:
    """Returns the constructor's lines, and its parameters with each module's value."""
    lines: dict[str, ast.expr] = {}
    columns = Columns([(x.parameters, len(x.instances)) for x in classes])
    tests = flags.tests(False)
    for name in dict.fromkeys(n for x in classes for n in x.lines):
        aligned = columns.joined([x.lines.get(name) for x in classes])
        texts = {ast.unparse(x) for x in aligned if x is not None}
        all_plain = all(x is None or not isinstance(x, (ast.Call, ast.List)) for x in aligned)
        if len(texts) == 1 and (None not in aligned or all_plain):
            lines[name] = next(x for x in aligned if x is not None)
        else:
            bodies: list[list[ast.stmt]] = [[ast.Expr(x or ast.Constant(None))] for x in aligned]
            lines[name] = _as_choice(branched(bodies, tests))
    flag_names = {*flags.attributes, *(f"has_{x}" for x in flags.has_submodule)}
    texts = {*columns.values, *flag_names, *(n for x in classes for n in x.parameters)}
    read = dict.fromkeys(n for x in lines.values() for n in names_in(x).parameters if n in texts)
    return lines, {
        x: flags.values(x) if x in flag_names else _values(x, columns, classes) for x in read
    }


def _values(name: str, columns: Columns, classes: list[Class]) -> list[Any]:
    """Returns each module's value of a parameter."""
    joined_values = columns.values.get(name, {})
    unknown = lambda x: x.parameters.get(name, [_UNKNOWN] * len(x.instances))
    values = [v for i, x in enumerate(classes) for v in joined_values.get(i) or unknown(x)]
    instances = [x for cls in classes for x in cls.instances]
    for i, (value, x) in enumerate(zip(values, instances)):
        if value is _UNKNOWN:
            constants = (y.value for line in x.lines.values() for y in ast.walk(line)
                    if isinstance(y, ast.Constant) and getattr(y, "hint", "") == name)  # fmt: skip
            values[i] = x.scope.values.get(name, next(constants, _UNKNOWN))
            if values[i] is _UNKNOWN:
                values[i] = _default(x.scope, name)
    return values


def _default(scope: Scope, name: str) -> Any:
    """Returns the default of a parameter that a module does not use."""
    try:
        return scope.parameter(name, scope.constructors[0])
    except (NotExpressible, IndexError) as error:
        raise Inseparable from error


def _as_choice(body: list[ast.stmt]) -> ast.expr:
    """Returns ``a if test else b``."""
    match body:
        case [ast.Expr(value=value)]:
            return value
        case [ast.If(test=test, body=yes, orelse=no)]:
            return ast.IfExp(test, _as_choice(yes), _as_choice(no))
    raise Inseparable


def _share_fields(classes: list[Class]) -> None:
    """Gives each module's configuration the fields that the lines of others read."""
    instances = [x for cls in classes for x in cls.instances]
    for name in dict.fromkeys(n for x in instances for n in x.needs):
        for x in instances:
            x.needs.setdefault(name, field_of(x.scope.config, name))


def pass_by_name(bodies: list[list[ast.stmt]], paths: set[str], old_order: list[str],
                   joined: United) -> None:  # fmt: skip
    """Rewrites calls of these modules, which passed arguments in ``old_order``."""
    for statement, call in ((s, x) for body in bodies for s in body for x in ast.walk(s)):
        if isinstance(call, ast.Call) and getattr(call, "callee", None) in paths:
            statement.__dict__.pop("text", None)
            values = dict(zip(old_order, call.args))
            call.args = [
                values[x] for x in joined.order if x in values and x not in joined.optional
            ]
            keywords = [ast.keyword(x, values[x]) for x in joined.order
                     if x in joined.optional and x in values]  # fmt: skip
            call.keywords = keywords + call.keywords
