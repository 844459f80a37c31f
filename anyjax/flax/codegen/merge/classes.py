"""Modules of one class as one class: its parameters, its numbers in the author's terms."""

from __future__ import annotations

import ast
import copy
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from anyjax.flax.codegen.author.constructors import Constructor, assigned_values
from anyjax.flax.codegen.author.evaluate import (
    CONFIG,
    NotExpressible,
    Scope,
    field_of,
    is_number,
    names_in,
)
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.merge.configs import Configs
from anyjax.flax.codegen.merge.constructor_lines import Lines, as_tree, text
from anyjax.flax.codegen.merge.shared_class import Class, Instance
from anyjax.flax.codegen.merge.variants import pass_by_name, united
from anyjax.flax.codegen.module.call_kinds import Style
from anyjax.flax.codegen.module.class_code import ClassCode
from anyjax.flax.codegen.module.layers import with_hints, with_path
from anyjax.flax.codegen.module.writer import Writer
from anyjax.flax.codegen.python.file_text import NAMES, STANDARD
from anyjax.flax.codegen.python.syntax import free_name, name_of, replaced_by_id

FIELD = "config.{}"


def merged(writer: Writer, root: Block) -> tuple[list[Class], Configs]:
    """Returns the classes, inner ones first, and the configurations that they read."""
    writer.code_of(root)
    heights: dict[Block, int] = {}
    _set_heights(writer, root, heights)
    scopes = _scopes(root, heights)
    classes: list[Class] = []
    class_of: dict[Block, tuple[Class, Instance]] = {}
    used = {*NAMES, *STANDARD, *writer.shared.snippets}
    for height in sorted(set(heights.values())):
        groups: dict[tuple, list[Instance]] = defaultdict(list)
        for block in (b for b, h in heights.items() if h == height):
            instance = Instance(block, scopes[block], {})
            line_builder = Lines(instance, class_of, writer)
            fields = as_tree(writer.code_of(block).fields)
            instance.lines = {k: line_builder.build(x, k) for k, x in fields.items()}
            groups[_class_key(writer.code_of(block), instance)].append(instance)
        _join_groups(writer, groups)
        for cls in _united(writer, [_class(writer, x) for x in groups.values()]):
            is_outermost = cls.instances[0].block is root
            reserved = used if is_outermost else used | {type(root.module).__name__}
            cls.name = _free_name(cls.name, reserved)
            used.add(cls.name)
            classes.append(cls)
            class_of |= {x.block: (cls, x) for x in cls.instances}
    configs = Configs()
    configs.record(scopes[root].config, classes[-1].instances[0].needs)
    for cls in classes:
        for instance in cls.instances:
            configs.record_literals(instance.lines)
    return classes, configs


def _class(writer: Writer, instances: list[Instance]) -> Class:
    """Returns the class of modules that do the same."""
    code = writer.code_of(instances[0].block)
    cls = Class(code.name, code, instances)
    _resolve(cls, writer.style)
    return cls


def _united(writer: Writer, classes: list[Class]) -> list[Class]:
    """Returns the classes; those of one name are united where that is shorter."""
    groups: list[list[Class]] = []
    for cls in classes:
        for group in groups:
            if group[0].name == cls.name and united([*group, cls]) is not None:
                group.append(cls)
                break
        else:
            groups.append([cls])
    united_or_all = lambda x: [_unite(writer, x)] if len(x) > 1 and _calls_agree(writer, x) else x
    return [y for x in groups for y in united_or_all(x)]


def _calls_agree(writer: Writer, classes: list[Class]) -> bool:
    """Returns whether one class can replace each of these wherever they are called."""
    parameters = {x.block.path: y.code.parameters for y in classes for x in y.instances}
    for loop in writer.shared.loops:
        parameter_lists = [parameters.get(x) for x in loop]
        if any(parameter_lists) and parameter_lists != [parameter_lists[0]] * len(parameter_lists):
            return False
    blocks = [x.instances[0].block for x in classes]
    mode_flags = [[*map(ast.dump, writer.style.mode_flags(writer.kinds, x))] for x in blocks]
    return all(x == mode_flags[0] for x in mode_flags)


def _unite(writer: Writer, classes: list[Class]) -> Class:
    """Unites several classes; their calls pass by name the arguments that only some have."""
    joined = united(classes)
    assert joined is not None
    bodies = [x.body for x in writer.codes.values()]
    for cls in classes:
        paths = {x.block.path for x in cls.instances}
        pass_by_name(bodies, paths, cls.code.parameters, joined)
    code = replace(
        classes[0].code, parameters=joined.order, optional=joined.optional, body=joined.body
    )
    instances = [x for cls in classes for x in cls.instances]
    lines = _ordered(joined.lines, writer.style)
    return Class(code.name, code, instances, joined.parameters, lines)


def _set_heights(writer: Writer, block: Block, heights: dict[Block, int]) -> int:
    """Sets the number of levels of classes below each block that becomes a class."""
    if block not in heights:
        inner_blocks = [x for x in writer.code_of(block).fields.values() if isinstance(x, Block)]
        heights[block] = 1 + max(
            (_set_heights(writer, x, heights) for x in inner_blocks), default=0
        )
    return heights[block]


def _scopes(root: Block, blocks: Iterable[Block]) -> dict[Block, Scope]:
    """Returns the scope of each block; a module without configuration has that of its parent."""
    scopes: dict[Block, Scope] = {}
    for block in sorted(blocks, key=lambda b: len(b.path)):
        enclosing = [b for b in scopes if block.path.startswith(f"{b.path}." if b.path else "")]
        outer = max(enclosing, key=lambda b: len(b.path), default=None)
        scopes[block] = Scope(block.module, scopes[outer].config if outer else None)
    return scopes


def _free_name(name: str, used: Container[str]) -> str:
    """Returns the name, with a number where something else in the file has it."""
    names = (f"{name}{i if i > 1 else ''}" for i in count(1))
    return next(x for x in names if x not in used)


def _class_key(code: ClassCode, instance: Instance) -> tuple:
    """Returns the code without its numbers, which modules of one class have in common."""
    lines = copy.deepcopy(instance.lines)
    blank: dict[int, ast.expr] = {id(x): name_of("number") for x in numbers(lines)}
    texts = tuple((k, text(replaced_by_id(x, blank))) for k, x in lines.items())
    return code.name, tuple(code.parameters), tuple(map(text, code.body)), texts


def _join_groups(writer: Writer, groups: dict[tuple, list[Instance]]) -> None:
    """Joins groups of one class where the code of one serves the other."""
    for key, other_key in [(a, b) for a in groups for b in groups if a is not b and a[0] == b[0]]:
        if not groups.get(key) or not groups.get(other_key):
            continue
        code = writer.code_of(groups[key][0].block)
        first = groups[key][0]
        joined = [
            _adopted_instance(code, first, x, writer.code_of(x.block)) for x in groups[other_key]
        ]
        adopted = [x for x in joined if x is not None and _class_key(code, x) == key]
        if len(adopted) == len(joined):
            groups[key] += adopted
            groups[other_key] = []
    for key in [k for k, x in groups.items() if not x]:
        del groups[key]


def _adopted_instance(
    code: ClassCode, first: Instance, instance: Instance, own_code: ClassCode
) -> Instance | None:
    """Returns a module with the code of another; None if it does not fit."""
    module = instance.block.module
    if code.parameters != own_code.parameters or not _is_equal_body(
        code.body, own_code.body, module
    ):
        return None
    lines = {
        k: instance.lines.get(k) or _attribute(k, getattr(module, k, None)) for k in first.lines
    }
    extra = {
        k for k in instance.lines if k not in lines and not is_number(getattr(module, k, None))
    }
    return None if extra else Instance(instance.block, instance.scope, lines, instance.needs)


def _is_equal_body(body: list[ast.stmt], own_body: list[ast.stmt], module: torch.nn.Module) -> bool:
    """Returns whether one body computes for this module what its own body computes.

    In a square layer ``self.nx`` is ``self.nf``: either may stand for a number of its code.
    """
    return len(body) == len(own_body) and all(
        _is_equal(a, b, module) for a, b in zip(body, own_body)
    )


def _is_equal(a: object, b: object, module: torch.nn.Module) -> bool:
    if isinstance(a, ast.AST):
        number = _number(a, module)
        if number is not None and isinstance(a, ast.Attribute):
            return number == _number(b, module)
        if type(a) is not type(b):
            return False
        assert isinstance(b, ast.AST)
        return all(_is_equal(getattr(a, x, None), getattr(b, x, None), module) for x in a._fields)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_is_equal(x, y, module) for x, y in zip(a, b))
    return a == b


def _number(expr: object, module: torch.nn.Module) -> Any:
    """Returns the number that a constant, or an attribute of the module, is."""
    value = getattr(expr, "value", None)
    match expr:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            value = getattr(module, name, None)
    return value if is_number(value) else None


def numbers(lines: dict[str, ast.expr]) -> list[Any]:
    """Returns the numbers that could be parameters, in order."""
    return [x for line in lines.values() for x in ast.walk(line) if hasattr(x, "hint")]


# ---- numbers in the author's terms


def _resolve(cls: Class, style: Style) -> None:
    """Sets the parameters and lines of a class."""
    instances = cls.instances
    for instance in instances:
        _bind(instance)
    while True:
        columns = [*zip(*(numbers(x.lines) for x in instances))]
        terms = {i: term for i, x in enumerate(columns) if (term := _common_term(x, instances))}
        read = [name for x in terms.values() for name in names_in(x).attributes]
        missing = [x for x in dict.fromkeys(read) if x not in instances[0].lines]
        if not missing:
            break
        for instance in instances:
            added = {k: _attribute(k, getattr(instance.block.module, k)) for k in missing}
            instance.lines = added | instance.lines
    _set_parameters(cls, columns, terms)
    cls.lines = _ordered(cls.lines, style)


def _bind(instance: Instance) -> None:
    """Infers values of parameters from numbers that the author passes as a parameter."""
    scope = instance.scope
    votes: dict[str, Counter] = defaultdict(Counter)
    for number in numbers(instance.lines):
        for constructor in scope.constructors if number.kind != "table" else ():
            for x in _author_expressions(number, constructor, instance):
                match x:
                    case ast.Name(id=name) if name not in CONFIG:
                        if own_name := scope.own_name(name, constructor):
                            votes[own_name][number.value] += 1
    for name, values in votes.items():
        scope.bind(name, values.most_common(1)[0][0])


def _attribute(name: str, value: object) -> ast.expr:
    return with_path(with_hints(value, name), name, "self")


def _author_expressions(
    number: Any, constructor: Constructor, instance: Instance
) -> list[ast.expr]:
    """Returns the author's expressions in the place of a number."""
    path, kind, module = number.path, number.kind, instance.block.module
    if kind == "self":
        assigned = constructor.attributes.get(path, [])
        return [*assigned, ast.parse(FIELD.format(path), mode="eval").body]
    if kind == "table":
        return assigned_values(module.__class__)
    if kind == "count":
        return constructor.list_lengths(path)
    if kind.startswith("shape"):
        return constructor.dimension(path, int(kind[5:]))
    try:
        callee = type(module.get_submodule(path))
    except AttributeError:  # a rate of dropout that the author keeps as a number
        return constructor.attributes.get(path, [])
    return constructor.arguments(path, number.hint, callee)


def _common_term(column: tuple, instances: list[Instance]) -> ast.expr | None:
    """Returns the expression that gives each module its number."""
    first = instances[0]
    for i, constructor in enumerate(first.scope.constructors):
        for candidate in _author_expressions(column[0], constructor, first):
            texts = set()
            for number, instance in zip(column, instances):
                try:
                    value, term = instance.scope.read(candidate, instance.scope.constructors[i])
                except NotExpressible:
                    break
                if not is_number(value) or value != number.value:
                    break
                texts.add(text(term))
            else:
                own_attribute = f"self.{column[0].path}"
                if len(texts) == 1 and _has_names(term) and text(term) != own_attribute:
                    return term
    return None


def _has_names(expr: ast.expr) -> bool:
    """Returns whether an expression is more than a number."""
    return any(isinstance(x, (ast.Name, ast.Attribute)) for x in ast.walk(expr))


def _set_parameters(cls: Class, columns: list[tuple], terms: dict[int, ast.expr]) -> None:
    """Adds the parameters that the terms read, and one for each other number that differs."""
    instances = cls.instances
    for term in terms.values():
        read = names_in(term)
        for name in read.parameters:
            cls.parameters.setdefault(name, [_value(x, name) for x in instances])
        for name in read.fields:
            for instance in instances:
                instance.needs[name] = field_of(instance.scope.config, name)
    order = [n for c in instances[0].scope.constructors[:1] for n in c.parameters]
    cls.parameters = dict(sorted(cls.parameters.items(), key=lambda x: order.index(x[0])))
    name_of_values: dict[tuple, str] = {}
    for i, column in enumerate(columns):
        values = tuple(x.value for x in column)
        if i in terms or len(set(values)) == 1:
            continue
        if values not in name_of_values:
            name = name_of_values[values] = free_name(column[0].hint, cls.parameters)
            cls.parameters[name] = list(values)
        terms[i] = name_of(name_of_values[values])
    lines = copy.deepcopy(instances[0].lines)
    swap = {id(x): terms[i] for i, x in enumerate(numbers(lines)) if i in terms}
    cls.lines = {k: replaced_by_id(x, swap) for k, x in lines.items()}


def _value(instance: Instance, name: str) -> Any:
    return instance.scope.parameter(name, instance.scope.constructors[0])


def _ordered(lines: dict[str, ast.expr], style: Style) -> dict[str, ast.expr]:
    """Sorts lines so that each comes after those that it reads, plain values first."""
    plain_names = [name for name, x in lines.items() if not style.constructs.search(text(x))]
    ordered: dict[str, ast.expr] = {}

    def place(name: str) -> None:
        if name in lines and name not in ordered:
            for dependency in names_in(lines[name]).attributes:
                if dependency != name:
                    place(dependency)
            ordered[name] = lines[name]

    for name in (*plain_names, *lines):
        place(name)
    return ordered
