"""The statements of one ``__call__``, by the lines of the author's ``forward``."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection
from typing import Any, Protocol

from torch import fx

from anyjax.flax.codegen.author.source_lines import Statement, forward_of, helper_name
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.class_code import Field
from anyjax.flax.codegen.module.forward_constants import ForwardNumbers
from anyjax.flax.codegen.module.steps import Loop, Step
from anyjax.flax.codegen.ops import channels_last
from anyjax.flax.codegen.python.sizes import DEFAULTS, Sizes
from anyjax.flax.codegen.python.syntax import assignment, free_name, name_of, names_loaded
from anyjax.flax.codegen.python.templates import variable

# What an operator gives, where the author does not say.
PARTS = {
    ("sort", 2): ("ordered", "order"),
    ("topk", 2): ("values", "indices"),
    ("chunk", 2): ("first", "second"),
    ("split", 2): ("first", "second"),
}


class CallWriter(Protocol):
    """The writer of the whole file, as far as a body needs it.

    Attributes:
      last: the values that are written with channels last.
      labels: the variables in which values were first stored.
      passed_names: parameters that values are passed to which several layers return.
      loops: the modules that one call of a loop calls.
    """

    graph: Graph
    last: set[fx.Node]
    labels: dict[fx.Node, str]
    passed_names: dict[fx.Node, list[str]]
    loops: list[list[str]]

    def step_call(self, step: Step, body: Body) -> ast.expr: ...

    def write_loop(self, loop: Loop, body: Body) -> None: ...

    def stored_value(self, node: fx.Node, body: Body) -> ast.expr: ...

    def output(self, node: fx.Node, body: Body) -> ast.expr: ...

    def returned_value(self, block: Block, results: list[ast.expr]) -> ast.expr: ...

    def entry_statements(self, block: Block, inputs: dict[fx.Node, str]) -> list[ast.stmt]: ...

    def result_names(self, block: Block) -> list[str]: ...

    def set_reads(self, step: Step, body: Body) -> None: ...

    def interface(self, block: Block) -> tuple[list[int], list, list[str]]: ...


class Body:
    """Writes the statements of a block.

    Attributes:
      inputs: the names of the block's inputs.
      fields: the fields that the class needs for it, by attribute.
      statements: the finished body, return included.
    """

    def __init__(
        self,
        block: Block,
        inputs: dict[fx.Node, str],
        steps: list[Step],
        writer: CallWriter,
        fields: dict[str, Field],
    ):
        self.block, self.inputs, self.writer, self.fields = block, inputs, writer, fields
        self.forward = forward_of(block.module.__class__)
        self.names: dict[fx.Node, str] = dict(inputs)  # variables that hold values
        self.bound = {name: node for node, name in inputs.items()}
        self.alias_of: dict[fx.Node, fx.Node] = {}
        self.pending: dict[fx.Node, Step] = {}
        self.cheap: dict[fx.Node, Step] = {}  # written again at each use
        self.statements: list[ast.stmt] = []
        self.steps = steps
        self.reads_left: Counter[fx.Node] = Counter(x for item in steps for x in item.reads)
        self.reads_left.update(x for item in steps if item.loop for x in item.loop.inner())
        self.reads_left.update(block.outputs if block.path else writer.graph.leaves())
        self.uses = Counter(self.reads_left)
        shapes = {name: channels_last.shape(node, writer.last) for node, name in inputs.items()}
        sizes = self.forward.sizes() if self.forward else {}
        for node, name in inputs.items():
            if node in writer.last:
                count = len(shapes[name])
                author_names = {k: n for k, n in sizes.items() if k[0] == name}
                sizes = {k: n for k, n in sizes.items() if k[0] != name}
                default_names = channels_last.channels_moved_last(
                    DEFAULTS.get(count, [f"size_{i}" for i in range(count)])
                )
                sizes |= {(name, d): n for d, n in enumerate(default_names)}
                sizes |= {
                    (name, channels_last.place(d, count)): n for (_, d), n in author_names.items()
                }
        self.sizes = Sizes(shapes, sizes, set(inputs.values()) | self._assigned())
        self.numbers: ForwardNumbers | None = None

    def _assigned(self) -> set[str]:
        forward = self.forward
        statements = {forward.statement(n) for n in self.block.nodes()} if forward else set()
        return {variable(t) for s in statements if s for t in s.targets if t}

    def write(self) -> None:
        """Writes the sizes' header, all steps and the return."""
        self.write_steps(self.steps)
        results = [self.writer.output(node, self) for node in self.block.outputs]
        self.result_names = [x.id if isinstance(x, ast.Name) else "" for x in results]
        is_single = len(results) == 1 and (self.block.path or len(self.writer.graph.leaves()) == 1)
        if is_single and isinstance(results[0], ast.Name) and self.statements:
            last: Any = self.statements[-1]  # `x = ...; return x` in one line
            if isinstance(last, ast.Assign) and ast.unparse(last.targets[0]) == results[0].id:
                self.statements.pop()
                results = [last.value]
        self.statements.append(ast.Return(self.writer.returned_value(self.block, results)))
        self.statements[:0] = [
            *self.writer.entry_statements(self.block, self.inputs),
            *self.sizes.header(),
        ]

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

    def statement_of(self, step: Step) -> Statement | None:
        """Returns the author's statement that a step belongs to."""
        if self.forward is None:
            return None
        return next((s for n in step.nodes if (s := self.forward.statement(n))), None)

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
            self.writer.write_loop(step.loop, self)
            return
        if len(step.makes) != 1 or step.gives_list:
            if any(step.makes):
                self._assign_many(step, targets)
            return
        (node,) = step.makes
        if node is None or not self.uses[node]:
            return
        if node in self.writer.graph.ranges and node not in targets:
            self.cheap[node] = step
        elif node in targets or self.uses[node] > 1:
            expr = self._expression(step)
            if isinstance(expr, ast.Name) and self._make_alias(node, expr.id, targets.get(node)):
                return
            self.assign(node, targets.get(node) or self._fallback_name(step, node), expr)
        else:
            self.pending[node] = step

    def _make_alias(self, node: fx.Node, name: str, target: str | None) -> bool:
        """Lets a value that equals a variable go by its name; returns whether it does."""
        source = self.bound.get(name)
        if source is None or target == name:
            return False
        self.names[node] = name
        self.reads_left[source] += self.reads_left[node]
        self.alias_of[node] = source
        return True

    def value(self, node: fx.Node) -> ast.expr:
        """Returns the expression of a value at its use."""
        self.count_read(node)
        if node in self.pending:
            return self._expression(self.pending.pop(node))
        if node in self.cheap:
            return self._expression(self.cheap[node])
        if node in self.names:
            return name_of(self.names[node])
        return self.writer.stored_value(node, self)  # a parameter or a constant

    def count_read(self, node: fx.Node) -> None:
        """Counts a read of a value, and of the value that it is an alias of."""
        self.reads_left[node] -= 1
        if node in self.alias_of:
            self.count_read(self.alias_of[node])

    def _expression(self, step: Step) -> ast.expr:
        expr = self.writer.step_call(step, self)
        if self.numbers is None or step.block is not None:
            return expr
        return self.numbers.name_numbers(expr, step.node)

    def assign(self, node: fx.Node, name: str, expr: ast.expr) -> None:
        """Writes an assignment of a value to a variable."""
        self.rename_live_value(name, expr)
        self.names[node], self.bound[name] = name, node
        self.writer.labels.setdefault(node, name)
        if not (isinstance(expr, ast.Name) and expr.id == name):
            self.statements.append(assignment(name, expr))

    def _assign_many(self, step: Step, targets: dict[fx.Node, str]) -> None:
        """Writes ``values, indices = ...``."""
        expr = self._expression(step)
        if isinstance(expr, ast.Tuple) and len(expr.elts) == 1:  # nobody reads the others
            (node,) = (x for x in step.makes if x)
            self.assign(node, targets.get(node) or self._fallback_name(step, node), expr.elts[0])
            return
        if len(targets) < sum(x is not None for x in step.makes) and step.block is not None:
            result_names = self.writer.result_names(step.block)
            targets = {n: variable(name) for n, name in zip(step.makes, result_names) if n and name}
        names: list[str] = []
        default_names = PARTS.get((step.name, len(step.makes)), ())
        if step.block is None and not targets and default_names:
            targets = {n: default for n, default in zip(step.makes, default_names) if n}
        for node in step.makes:
            name = "_" if node is None else targets.get(node) or self._fallback_name(step, node)
            if node in self.writer.passed_names and self._is_taken(name, node):
                passed_names = self.writer.passed_names[node]
                name = next((x for x in passed_names if not self._is_taken(x, node)), name)
            names.append("_" if name == "_" else free_name(name, names))
        for node, name in zip(step.makes, names):
            if node is not None:
                self.rename_live_value(name, expr, [node])
                self.names[node], self.bound[name] = name, node
                self.writer.labels.setdefault(node, name)
        self.statements.append(assignment(names, expr))

    def rename_live_value(
        self, name: str, next_expr: ast.expr, except_for: Collection[fx.Node] = ()
    ) -> None:
        """Copies the value of ``name`` to another variable if it is read after an assignment.

        This is the author's second name for it, or one that ``next_expr`` does not read.
        """
        node = self.bound.get(name)
        if node is None or self.reads_left[node] <= 0 or node in except_for:
            return
        aliases = self.forward.aliases() if self.forward else {}
        new_name = variable(aliases.get(name, f"{name}_before"))
        read = names_loaded(next_expr)
        while new_name in read or self._is_live(new_name):
            new_name += "_"
        self.statements.append(assignment(new_name, name_of(name)))
        for value, value_name in list(self.names.items()):
            if value_name == name:
                self.names[value] = new_name
        self.bound[new_name] = node

    def _is_taken(self, name: str, node: fx.Node) -> bool:
        """Returns whether another value, which is read later, has this name."""
        holder = self.bound.get(name)
        return holder not in (None, node) and self.reads_left[holder] > 0

    def _fallback_name(self, step: Step, node: fx.Node) -> str:
        """Returns a name where the author gives none: that of an operand that is no longer read."""
        for x in step.reads:
            if (name := self.names.get(x)) and self.reads_left[x] <= 0:
                return name
        name = variable(helper_name(node) or step.name)
        while self._is_live(name) or name in self.sizes.reserved:
            name += "_"
        return name

    def _is_live(self, name: str) -> bool:
        """Returns whether a name has a value that is read later."""
        return name in self.bound and self.reads_left[self.bound[name]] > 0


def _is_next_in_list(step: Step, previous: list[Step]) -> bool:
    """Returns whether a step calls another module of a list that the statement called before."""
    home = lambda s: s.block.path.rpartition(".")[0] if s.block else None
    is_in_list = step.block is not None and step.block.path.rpartition(".")[2].isdigit()
    return is_in_list and any(home(x) == home(step) for x in previous)
