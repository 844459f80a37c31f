"""The variables of one ``__call__``: what each holds, and how often it is still read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection

from torch import fx

from anyjax.flax.codegen.author.source_lines import Statement, forward_of, helper_name
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.steps import Step
from anyjax.flax.codegen.python.sizes import Sizes
from anyjax.flax.codegen.python.syntax import assignment, name_of, names_loaded
from anyjax.flax.codegen.python.templates import variable


class Variables:
    """The variables of a block, and the assignments to them.

    Attributes:
      inputs: the names of the block's inputs.
      sizes: the names of sizes.
      labels: the variables in which values of the whole file were first stored.
      statements: those that are written.
    """

    def __init__(
        self, block: Block, inputs: dict[fx.Node, str], sizes: Sizes, labels: dict[fx.Node, str]
    ):
        self.block, self.inputs, self.sizes, self.labels = block, inputs, sizes, labels
        self.forward = forward_of(block.module.__class__)
        self.names: dict[fx.Node, str] = dict(inputs)  # variables that hold values
        self.bound = {name: node for node, name in inputs.items()}
        self.alias_of: dict[fx.Node, fx.Node] = {}
        self.reads_left: Counter[fx.Node] = Counter()
        self.statements: list[ast.stmt] = []

    def statement_of(self, step: Step) -> Statement | None:
        """Returns the author's statement that a step belongs to."""
        if self.forward is None:
            return None
        return next((s for n in step.nodes if (s := self.forward.statement(n))), None)

    def make_alias(self, node: fx.Node, name: str, target: str | None) -> bool:
        """Lets a value that equals a variable go by its name; returns whether it does."""
        source = self.bound.get(name)
        if source is None or target == name:
            return False
        self.names[node] = name
        self.reads_left[source] += self.reads_left[node]
        self.alias_of[node] = source
        return True

    def count_read(self, node: fx.Node) -> None:
        """Counts a read of a value, and of the value that it is an alias of."""
        self.reads_left[node] -= 1
        if node in self.alias_of:
            self.count_read(self.alias_of[node])

    def assign(self, node: fx.Node, name: str, expr: ast.expr) -> None:
        """Writes an assignment of a value to a variable."""
        self.rename_live_value(name, expr)
        self.names[node], self.bound[name] = name, node
        self.labels.setdefault(node, name)
        if not (isinstance(expr, ast.Name) and expr.id == name):
            self.statements.append(assignment(name, expr))

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
        while new_name in read or self.is_live(new_name):
            new_name += "_"
        self.statements.append(assignment(new_name, name_of(name)))
        for value, value_name in list(self.names.items()):
            if value_name == name:
                self.names[value] = new_name
        self.bound[new_name] = node

    def is_taken(self, name: str, node: fx.Node) -> bool:
        """Returns whether another value, which is read later, has this name."""
        holder = self.bound.get(name)
        return holder not in (None, node) and self.reads_left[holder] > 0

    def fallback_name(self, step: Step, node: fx.Node) -> str:
        """Returns a name where the author gives none: that of an operand that is no longer read."""
        for x in step.reads:
            if (name := self.names.get(x)) and self.reads_left[x] <= 0:
                return name
        name = variable(helper_name(node) or step.name)
        while self.is_live(name) or name in self.sizes.reserved:
            name += "_"
        return name

    def is_live(self, name: str) -> bool:
        """Returns whether a name has a value that is read later."""
        return name in self.bound and self.reads_left[self.bound[name]] > 0
