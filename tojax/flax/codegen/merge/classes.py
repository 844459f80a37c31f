"""Modules of one class as one class: its parameters, and its numbers in the author's terms."""

from __future__ import annotations

import ast
import copy
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import count
from typing import Any

from tojax.flax.codegen.author.constructors import Constructor, said_in
from tojax.flax.codegen.author.evaluate import CONFIG, Scope, Unknown, field_of, is_number, names_in
from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.merge.configs import Configs
from tojax.flax.codegen.merge.constructor_lines import Lines, grouped, text
from tojax.flax.codegen.merge.renamed_attributes import fits
from tojax.flax.codegen.merge.shared_class import Class, Instance
from tojax.flax.codegen.merge.variants import called_by_name, united
from tojax.flax.codegen.module.class_code import ClassCode
from tojax.flax.codegen.module.layers import with_hints, with_path
from tojax.flax.codegen.module.style import Style
from tojax.flax.codegen.module.writer import Writer
from tojax.flax.codegen.python.templates import Swapped

FIELD = "config.{}"


def merged(writer: Writer, root: Block) -> tuple[list[Class], Configs]:
    """The classes, inner ones first, and the configurations that they read."""
    writer.code_of(root)
    heights: dict[Block, int] = {}
    _heights(writer, root, heights)
    scopes = _scopes(root, heights)
    found: list[Class] = []
    class_of: dict[Block, tuple[Class, Instance]] = {}
    for height in sorted(set(heights.values())):
        groups: dict[Any, list[Instance]] = defaultdict(list)
        for block in (b for b, h in heights.items() if h == height):
            instance = Instance(block, scopes[block], {})
            build = Lines(instance, class_of, writer)
            instance.lines = build.all(grouped(writer.code_of(block).fields))
            groups[_likeness(writer.code_of(block), instance)].append(instance)
        _adopt(writer, groups)
        for whole in _united(writer, [_class(writer, x) for x in groups.values()]):
            whole.name = _free(whole.name, found)
            found.append(whole)
            class_of |= {x.block: (whole, x) for x in whole.instances}
    configs = Configs()
    configs.note(scopes[root].config, found[-1].instances[0].needs)
    for whole in found:
        for instance in whole.instances:
            configs.literal(instance.lines)
    return found, configs


def _class(writer: Writer, instances: list[Instance]) -> Class:
    """That of modules which do the same."""
    made = writer.code_of(instances[0].block)
    whole = Class(made.name, made, instances)
    _resolve(whole, writer.style)
    return whole


def _united(writer: Writer, classes: list[Class]) -> list[Class]:
    """The same, one for those of a name where a person would write one."""
    found: list[list[Class]] = []
    for whole in classes:
        for home in found:
            if home[0].name == whole.name and united([*home, whole]) is not None:
                home.append(whole)
                break
        else:
            found.append([whole])
    one = lambda x: [_one(writer, x)] if len(x) > 1 and _callable(writer, x) else x
    return [y for x in found for y in one(x)]


def _callable(writer: Writer, classes: list[Class]) -> bool:
    """Whether one class can stand in for each of these wherever they are called."""
    parameters = {x.block.path: y.code.parameters for y in classes for x in y.instances}
    for loop in writer.loops:
        taken = [parameters.get(x) for x in loop]
        if any(taken) and taken != [taken[0]] * len(taken):
            return False
    blocks = [x.instances[0].block for x in classes]
    told = [[*map(ast.dump, writer.style.mode_flags(writer, x))] for x in blocks]
    return all(x == told[0] for x in told)


def _one(writer: Writer, classes: list[Class]) -> Class:
    """One class for several kinds; their calls say the arguments that only some have by name."""
    one = united(classes)
    assert one is not None
    bodies = [x.body for x in writer.codes.values()]
    for whole in classes:
        paths = {x.block.path for x in whole.instances}
        called_by_name(bodies, paths, whole.code.parameters, one)
    made = replace(classes[0].code, parameters=one.taken, optional=one.optional, body=one.body)
    instances = [x for whole in classes for x in whole.instances]
    lines = _ordered(one.lines, writer.style)
    return Class(made.name, made, instances, one.parameters, lines)


def _heights(writer: Writer, block: Block, heights: dict[Block, int]) -> int:
    """How many classes lie below each block that is a class."""
    if block not in heights:
        inner = [x for x in writer.code_of(block).fields.values() if isinstance(x, Block)]
        heights[block] = 1 + max((_heights(writer, x, heights) for x in inner), default=0)
    return heights[block]


def _scopes(root: Block, blocks: Any) -> dict[Block, Scope]:
    """The scope of each block; a configuration that a module did not keep is that around it."""
    found: dict[Block, Scope] = {}
    for block in sorted(blocks, key=lambda b: len(b.path)):
        around = [b for b in found if block.path.startswith(f"{b.path}." if b.path else "")]
        outer = max(around, key=lambda b: len(b.path), default=None)
        found[block] = Scope(block.module, found[outer].config if outer else None)
    return found


def _free(name: str, found: list[Class]) -> str:
    """The name, with a number where another class has it."""
    taken = {x.name for x in found}
    names = (f"{name}{i if i > 1 else ''}" for i in count(1))
    return next(x for x in names if x not in taken)


def _likeness(made: ClassCode, instance: Instance) -> tuple:
    """What modules of one class have in common: all but the numbers."""
    lines = copy.deepcopy(instance.lines)
    blank: dict[int, ast.expr] = {id(x): ast.Name("number", ast.Load()) for x in numbers(lines)}
    texts = tuple((k, text(Swapped(blank).visit(x))) for k, x in lines.items())
    return made.name, tuple(made.parameters), tuple(map(text, made.body)), texts


def _adopt(writer: Writer, groups: dict[Any, list[Instance]]) -> None:
    """Joins groups of one class where the code of one serves the other."""
    for key, other in [(a, b) for a in groups for b in groups if a is not b and a[0] == b[0]]:
        if not groups.get(key) or not groups.get(other):
            continue
        made = writer.code_of(groups[key][0].block)
        first = groups[key][0]
        joined = [_adopted(made, first, x, writer.code_of(x.block)) for x in groups[other]]
        found = [x for x in joined if x is not None and _likeness(made, x) == key]
        if len(found) == len(joined):
            groups[key] += found
            groups[other] = []
    for key in [k for k, x in groups.items() if not x]:
        del groups[key]


def _adopted(made: ClassCode, first: Instance, other: Instance, own: ClassCode) -> Instance | None:
    """A module with the code of another; None if it does not fit."""
    module = other.block.module
    if made.parameters != own.parameters or not fits(made.body, own.body, module):
        return None
    lines = {k: other.lines.get(k) or _attribute(k, getattr(module, k, None)) for k in first.lines}
    extra = {k for k in other.lines if k not in lines and not is_number(getattr(module, k, None))}
    return None if extra else Instance(other.block, other.scope, lines, other.needs)


def numbers(lines: dict[str, ast.expr]) -> list[Any]:
    """The numbers that could be parameters, in order."""
    return [x for line in lines.values() for x in ast.walk(line) if hasattr(x, "hint")]


# ---- numbers in the author's terms


def _resolve(whole: Class, style: Style) -> None:
    """Fills in the parameters and the lines."""
    instances = whole.instances
    for instance in instances:
        _bind(instance)
    while True:
        columns = [*zip(*(numbers(x.lines) for x in instances))]
        terms = {i: found for i, x in enumerate(columns) if (found := _agreed(x, instances))}
        read = [name for x in terms.values() for name in names_in(x).attributes]
        more = [x for x in dict.fromkeys(read) if x not in instances[0].lines]
        if not more:
            break
        for instance in instances:
            added = {k: _attribute(k, getattr(instance.block.module, k)) for k in more}
            instance.lines = added | instance.lines
    _parameters(whole, columns, terms)
    whole.lines = _ordered(whole.lines, style)


def _bind(instance: Instance) -> None:
    """The values of parameters that stand alone in the place of a number."""
    scope = instance.scope
    votes: dict[str, Counter] = defaultdict(Counter)
    for number in numbers(instance.lines):
        for constructor in scope.constructors if number.kind != "table" else ():
            for x in _said(number, constructor, instance):
                match x:
                    case ast.Name(id=name) if name not in CONFIG:
                        if own := scope.own_name(name, constructor):
                            votes[own][number.value] += 1
    for name, values in votes.items():
        scope.bind(name, values.most_common(1)[0][0])


def _attribute(name: str, value: Any) -> ast.expr:
    return with_path(with_hints(value, name), name, "self")


def _said(number: Any, constructor: Constructor, instance: Instance) -> list[ast.expr]:
    """What the author's constructor has in the place of a number."""
    path, kind, module = number.path, number.kind, instance.block.module
    if kind == "self":
        given = constructor.attributes.get(path, [])
        return [*given, ast.parse(FIELD.format(path), mode="eval").body]
    if kind == "table":
        return said_in(module.__class__)
    if kind == "count":
        return constructor.counts(path)
    if kind.startswith("shape"):
        return constructor.shape(path, int(kind[5:]))
    try:
        callee = type(module.get_submodule(path))
    except AttributeError:  # a rate of dropout that the author keeps as a number
        return constructor.attributes.get(path, [])
    return constructor.arguments(path, number.hint, callee)


def _agreed(column: tuple, instances: list[Instance]) -> ast.expr | None:
    """The expression that gives each module its number."""
    first = instances[0]
    for i, constructor in enumerate(first.scope.constructors):
        for said in _said(column[0], constructor, first):
            texts = set()
            for number, instance in zip(column, instances):
                try:
                    value, found = instance.scope.of(said, instance.scope.constructors[i])
                except Unknown:
                    break
                if not is_number(value) or value != number.value:
                    break
                texts.add(text(found))
            else:
                own = f"self.{column[0].path}"
                if len(texts) == 1 and _terms(found) and text(found) != own:
                    return found
    return None


def _terms(expr: ast.expr) -> bool:
    """Whether an expression says more than a number."""
    return any(isinstance(x, (ast.Name, ast.Attribute)) for x in ast.walk(expr))


def _parameters(whole: Class, columns: list[tuple], terms: dict[int, ast.expr]) -> None:
    """Parameters: those that the terms read, and one for each number that differs otherwise."""
    instances = whole.instances
    for term in terms.values():
        read = names_in(term)
        for name in read.parameters:
            whole.parameters.setdefault(name, [_value(x, name) for x in instances])
        for name in read.fields:
            for instance in instances:
                instance.needs[name] = field_of(instance.scope.config, name)
    order = [n for c in instances[0].scope.constructors[:1] for n in c.parameters]
    whole.parameters = dict(sorted(whole.parameters.items(), key=lambda x: order.index(x[0])))
    others: dict[tuple, str] = {}
    for i, column in enumerate(columns):
        values = tuple(x.value for x in column)
        if i in terms or len(set(values)) == 1:
            continue
        if values not in others:
            name = column[0].hint
            while name in whole.parameters:
                name += "_"
            others[values] = name
            whole.parameters[name] = list(values)
        terms[i] = ast.Name(others[values], ast.Load())
    lines = copy.deepcopy(instances[0].lines)
    swap = {id(x): terms[i] for i, x in enumerate(numbers(lines)) if i in terms}
    whole.lines = {k: Swapped(swap).visit(x) for k, x in lines.items()}


def _value(instance: Instance, name: str) -> Any:
    return instance.scope.parameter(name, instance.scope.constructors[0])


def _ordered(lines: dict[str, ast.expr], style: Style) -> dict[str, ast.expr]:
    """Each line after those that it reads; plain values first."""
    plain = [name for name, x in lines.items() if not style.constructs.search(text(x))]
    found: dict[str, ast.expr] = {}

    def place(name: str) -> None:
        if name in lines and name not in found:
            for other in names_in(lines[name]).attributes:
                if other != name:
                    place(other)
            found[name] = lines[name]

    for name in (*plain, *lines):
        place(name)
    return found
