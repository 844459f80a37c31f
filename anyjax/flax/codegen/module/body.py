"""The statements of one ``__call__``, by the lines of the author's ``forward``."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

from torch import fx

from anyjax.flax.codegen.author.source_lines import Statement
from anyjax.flax.codegen.graph.size_guards import size_check
from anyjax.flax.codegen.module.calls import Calls
from anyjax.flax.codegen.module.steps import Loop, Step
from anyjax.flax.codegen.module.write_loops import LoopNotWritable, for_statement, is_name
from anyjax.flax.codegen.ops import channels_last
from anyjax.flax.codegen.python.syntax import assignment, free_name, name_of
from anyjax.flax.codegen.python.templates import variable

# What an operator gives, where the author does not say.
PARTS = {
    ("sort", 2): ("ordered", "order"),
    ("topk", 2): ("values", "indices"),
    ("chunk", 2): ("first", "second"),
    ("split", 2): ("first", "second"),
}


class Body(Calls):
    """Writes the statements of a block; its ``statements`` are then the body, return included."""

    def write(self) -> None:
        """Writes the sizes' header, all steps and the return."""
        self.write_steps(self.steps)
        results = [self.output(node) for node in self.block.outputs]
        self.result_names = [x.id if isinstance(x, ast.Name) else "" for x in results]
        is_single = len(results) == 1 and (self.block.path or len(self.graph.leaves()) == 1)
        if is_single and isinstance(results[0], ast.Name) and self.statements:
            last: Any = self.statements[-1]  # `x = ...; return x` in one line
            if isinstance(last, ast.Assign) and ast.unparse(last.targets[0]) == results[0].id:
                self.statements.pop()
                results = [last.value]
        self.statements.append(ast.Return(self.returned_value(results)))
        self.statements[:0] = [*self.entry_statements(), *self.sizes.header()]

    def entry_statements(self) -> list[ast.stmt]:
        """Returns checks of the whole model's inputs, and their transposes to channels last."""
        if self.block.path:
            return []
        fixed = {node: self.graph.fixed.get(self.graph.roles[node][1]) for node in self.inputs}
        statements = [
            fixed_shape_check(tuple(node.meta["val"].shape), first, self.inputs[node])
            for node, first in fixed.items()
            if first is not None
        ]
        shapes = {name: channels_last.shape(node, set()) for node, name in self.inputs.items()}
        statements += size_check(self.graph.conditions, shapes)
        for node, name in self.inputs.items():
            if node in self.last:
                statements.append(assignment(name, channels_last.moved_last(name_of(name), node)))
        return statements

    def output(self, node: fx.Node) -> ast.expr:
        """Returns a result; the whole model's have torch's order of dimensions."""
        expr = self.value(node)
        return expr if self.block.path else self.operators.in_layout(expr, node, False)

    def returned_value(self, results: list[ast.expr]) -> ast.expr:
        """Returns the value of the return statement: one value, or the author's tree of them."""
        if self.block.path or len(self.graph.leaves()) == 1:
            return results[0] if len(results) == 1 else ast.Tuple(results, ast.Load())
        by_node = dict(zip(self.block.outputs, results))

        def build(tree: object) -> ast.expr | None:
            if isinstance(tree, fx.Node):
                return by_node[tree]
            if isinstance(tree, dict):
                members = {k: v for k, x in tree.items() if (v := build(x)) is not None}
                keys: list[ast.expr | None] = [ast.Constant(k) for k in members]
                return ast.Dict(keys, [*members.values()]) if members else None
            if isinstance(tree, (list, tuple)):
                elements = [v for x in tree if (v := build(x)) is not None]
                return ast.Tuple(elements, ast.Load()) if elements else None
            return None

        return build(self.graph.outputs) or ast.Constant(None)

    def write_steps(self, steps: list[Step]) -> None:
        """Writes steps; those of one of the author's statements share its names."""
        groups: list[tuple[Statement | None, list[Step]]] = []
        for step in steps:
            statement = self.statement_of(step)
            if groups and groups[-1][0] == statement and not _is_next_in_list(step, groups[-1][1]):
                groups[-1][1].append(step)
            else:
                groups.append((statement, [step]))
        for statement, items in groups:
            targets = self.targets_of(statement, items)
            for step in items:
                self._write_step(step, targets)

    def targets_of(self, statement: Statement | None, items: list[Step]) -> dict[fx.Node, str]:
        """Returns the author's names for values that a statement assigns."""
        inside = Counter(x for step in items for x in step.reads)
        makes = [n for step in items for n in step.makes if n]
        escaping = [n for n in makes if self.uses[n] > inside[n]]
        if statement is None or not statement.targets or not escaping:
            return {}
        if len(statement.targets) == len(escaping):
            pairs = zip(escaping, statement.targets)
        else:
            pairs = zip(escaping[-1:], statement.targets[:1])
        return {node: variable(name) for node, name in pairs if name}

    def _write_step(self, step: Step, targets: dict[fx.Node, str]) -> None:
        """Writes an assignment, or keeps the step until its value is used."""
        if step.loop:
            self.write_loop(step.loop)
            return
        if len(step.makes) != 1 or step.gives_list:
            if any(step.makes):
                self._assign_many(step, targets)
            return
        (node,) = step.makes
        if node is None or not self.uses[node]:
            return
        if node in self.graph.ranges and node not in targets:
            self.cheap[node] = step
        elif node in targets or self.uses[node] > 1:
            expr = self.expression(step)
            if isinstance(expr, ast.Name) and self.make_alias(node, expr.id, targets.get(node)):
                return
            self.assign(node, targets.get(node) or self.fallback_name(step, node), expr)
        else:
            self.pending[node] = step

    def _assign_many(self, step: Step, targets: dict[fx.Node, str]) -> None:
        """Writes ``values, indices = ...``."""
        expr = self.expression(step)
        if isinstance(expr, ast.Tuple) and len(expr.elts) == 1:  # nobody reads the others
            (node,) = (x for x in step.makes if x)
            self.assign(node, targets.get(node) or self.fallback_name(step, node), expr.elts[0])
            return
        if len(targets) < sum(x is not None for x in step.makes) and step.block is not None:
            result_names = self.names_of_results(step.block)
            targets = {n: variable(name) for n, name in zip(step.makes, result_names) if n and name}
        names: list[str] = []
        default_names = PARTS.get((step.name, len(step.makes)), ())
        if step.block is None and not targets and default_names:
            targets = {n: default for n, default in zip(step.makes, default_names) if n}
        for node in step.makes:
            name = "_" if node is None else targets.get(node) or self.fallback_name(step, node)
            if node in self.shared.passed_names and self.is_taken(name, node):
                passed_names = self.shared.passed_names[node]
                name = next((x for x in passed_names if not self.is_taken(x, node)), name)
            names.append("_" if name == "_" else free_name(name, names))
        for node, name in zip(step.makes, names):
            if node is not None:
                self.rename_live_value(name, expr, [node])
                self.names[node], self.bound[name] = name, node
                self.shared.labels.setdefault(node, name)
        self.statements.append(assignment(names, expr))

    def write_loop(self, loop: Loop) -> None:
        """Writes a loop into a body; the second round is the one that is written."""
        names = self._named_carries(loop)
        outer, self.statements = self.statements, []
        self.write_steps(loop.written_round)
        ends = [(updated, self.value(updated)) for _, _, updated, _ in loop.carries]
        differing = [(name, x) for name, (_, x) in zip(names, ends) if not is_name(x, name)]
        if differing:
            targets, values = [name for name, _ in differing], [x for _, x in differing]
            is_single = len(values) == 1
            value = values[0] if is_single else ast.Tuple(values, ast.Load())
            self.statements.append(assignment(targets[0] if is_single else targets, value))
        inner, self.statements = self.statements, outer
        for steps in (loop.rounds[0], *loop.rounds[2:]):
            for step in steps:
                self.set_reads(step)
        for steps_ in zip(*loop.rounds):
            blocks = [step.block for step in steps_ if step.block is not None]
            if any(self.interface(x) != self.interface(blocks[0]) for x in blocks[1:]):
                raise LoopNotWritable
            self.shared.loops.append([x.path for x in blocks])
        for x in loop.outside:
            self.count_read(x)
        for name, (_, _, updated, end) in zip(names, loop.carries):
            self.names[end] = self.names[updated] = name
            self.bound[name] = end
            self.labels.setdefault(end, name)
        self.statements.append(for_statement(loop, self, inner))

    def _named_carries(self, loop: Loop) -> list[str]:
        """Names the carried values, and assigns their initial values."""
        names: list[str] = []
        for initial, carried, updated, _ in loop.carries:
            maker = next(step for step in loop.written_round if updated in step.makes)
            statement = self.statement_of(maker)
            targets = [variable(x) for x in statement.targets if x] if statement else []
            first = self.value(initial)
            default_name = first.id if isinstance(first, ast.Name) else "x"
            name = targets[0] if len(targets) == 1 and targets[0] not in names else default_name
            name = free_name(name, names)
            if not is_name(first, name):
                self.rename_live_value(name, first)
                self.statements.append(assignment(name, first))
            elif self.reads_left[initial] > 0:
                self.rename_live_value(name, first)
            names.append(name)
            self.names[carried], self.bound[name] = name, carried
        return names


def fixed_shape_check(shape: tuple[int, ...], first: int, name: str) -> ast.stmt:
    """Returns the statement that refuses other sizes from a dimension on."""
    shape_text, sizes = f"{name}.shape[{first}:]" if first else f"{name}.shape", shape[first:]
    message = f"{name} has to have the sizes {sizes}, by which others were decided"
    return ast.parse(f"if {shape_text} != {sizes}:\n    raise ValueError({message!r})").body[0]


def _is_next_in_list(step: Step, previous: list[Step]) -> bool:
    """Returns whether a step calls another module of a list that the statement called before."""
    home = lambda s: s.block.path.rpartition(".")[0] if s.block else None
    is_in_list = step.block is not None and step.block.path.rpartition(".")[2].isdigit()
    return is_in_list and any(home(x) == home(step) for x in previous)
