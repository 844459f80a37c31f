"""The statements of one ``__call__``: operators of a block as the author's lines."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

from torch import fx

from tojax.flax.codegen.author.source_lines import Statement, forward_of, helped
from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.module.forward_constants import ForwardNumbers
from tojax.flax.codegen.module.steps import Step
from tojax.flax.codegen.module.write_loops import write_loop
from tojax.flax.codegen.ops import channels_last
from tojax.flax.codegen.python.sizes import DEFAULTS, Sizes
from tojax.flax.codegen.python.templates import name_of, variable

# What an operator gives, where the author does not say.
PARTS = {
    ("sort", 2): ("ordered", "order"),
    ("topk", 2): ("values", "indices"),
    ("chunk", 2): ("first", "second"),
    ("split", 2): ("first", "second"),
}


class Body:
    """Writes a block.

    Attributes:
      parameters: the names of the arguments, for ``block.inputs`` in the order of ``inputs``.
      statements: the finished body, return included.
    """

    def __init__(self, block: Block, inputs: dict[fx.Node, str], steps: list[Step],
                 write: Any):  # fmt: skip
        self.block, self.inputs, self.write = block, inputs, write
        self.forward = forward_of(block.module.__class__)
        self.names: dict[fx.Node, str] = dict(inputs)  # variables that hold values
        self.bound = {name: node for node, name in inputs.items()}
        self.pending: dict[fx.Node, Step] = {}
        self.cheap: dict[fx.Node, Step] = {}  # written again at each use
        self.statements: list[ast.stmt] = []
        self.items = steps
        self.left: Counter[fx.Node] = Counter(x for item in steps for x in item.reads)
        self.left.update(x for item in steps if item.roll for x in item.roll.inner())
        self.left.update(block.outputs if block.path else write.leaves())
        self.uses = Counter(self.left)
        known = {name: channels_last.shape(node, write.last) for node, name in inputs.items()}
        sizes = self.forward.sizes() if self.forward else {}
        for node, name in inputs.items():
            if node in write.last:
                count = len(known[name])
                turned = {k: n for k, n in sizes.items() if k[0] == name}
                sizes = {k: n for k, n in sizes.items() if k[0] != name}
                usual = channels_last.moved(
                    DEFAULTS.get(count, [f"size_{i}" for i in range(count)])
                )
                sizes |= {(name, d): n for d, n in enumerate(usual)}
                sizes |= {(name, channels_last.place(d, count)): n for (_, d), n in turned.items()}
        self.sizes = Sizes(known, sizes, set(inputs.values()) | self._assigned())
        self.fields: dict[str, Any] = {}
        self.numbers: ForwardNumbers | None = None

    def _assigned(self) -> set[str]:
        forward = self.forward
        found = {forward.statement(n) for n in self.block.nodes()} if forward else set()
        return {variable(t) for s in found if s for t in s.targets if t}

    def run(self) -> None:
        """Goes through the items."""
        self.go(self.items)
        results = [self.write.output(node, self) for node in self.block.outputs]
        self.returned = [x.id if isinstance(x, ast.Name) else "" for x in results]
        alone = len(results) == 1 and (self.block.path or len(self.write.leaves()) == 1)
        if alone and isinstance(results[0], ast.Name) and self.statements:
            last: Any = self.statements[-1]  # `x = ...; return x` in one line
            if isinstance(last, ast.Assign) and ast.unparse(last.targets[0]) == results[0].id:
                self.statements.pop()
                results = [last.value]
        self.statements.append(ast.Return(self.write.result(self.block, results)))
        self.statements[:0] = [*self.write.entry(self.block, self.inputs), *self.sizes.header()]

    def go(self, steps: list[Step]) -> None:
        """Writes steps, those of one of the author's statements together."""
        groups: list[tuple[Statement | None, list[Step]]] = []
        for item in steps:
            said = self.said(item)
            if groups and groups[-1][0] == said and not _again(item, groups[-1][1]):
                groups[-1][1].append(item)
            else:
                groups.append((said, [item]))
        for said, items in groups:
            targets = self.targets(said, items)
            for item in items:
                self._place(item, targets)

    def said(self, item: Step) -> Statement | None:
        if self.forward is None:
            return None
        return next((s for n in item.nodes if (s := self.forward.statement(n))), None)

    def targets(self, said: Statement | None, items: list[Step]) -> dict[fx.Node, str]:
        """The author's names for what leaves the statement."""
        inside = Counter(x for item in items for x in item.reads)
        made = [n for item in items for n in item.makes if n]
        escaping = [n for n in made if self.uses[n] > inside[n]]
        if said is None or not said.targets or not escaping:
            return {}
        if len(said.targets) == len(escaping):
            pairs = zip(escaping, said.targets)
        else:
            pairs = zip(escaping[-1:], said.targets[:1])
        return {node: variable(name) for node, name in pairs if name}

    def _place(self, item: Step, targets: dict[fx.Node, str]) -> None:
        """Emits an assignment, or keeps the item until it is used."""
        if item.roll:
            write_loop(item.roll, self)
            return
        if len(item.makes) != 1 or item.parts:
            if any(item.makes):
                self._assign_many(item, targets)
            return
        (node,) = item.makes
        if node is None or not self.uses[node]:
            return
        if node in self.write.graph.ranges and node not in targets:
            self.cheap[node] = item
        elif node in targets or self.uses[node] > 1:
            expr = self._written(item)
            if isinstance(expr, ast.Name) and self._same(node, expr.id, targets.get(node)):
                return
            self.assign(node, targets.get(node) or self._fallback(item, node), expr)
        else:
            self.pending[node] = item

    def _same(self, node: fx.Node, name: str, target: str | None) -> bool:
        """Where a value is only another's name: it goes by the name that it has."""
        other = self.bound.get(name)
        if other is None or target == name:
            return False
        self.names[node] = name
        self.left[other] += self.left[node]
        self.alias_of[node] = other
        return True

    @property
    def alias_of(self) -> dict[fx.Node, fx.Node]:
        return self.__dict__.setdefault("_alias_of", {})

    def value(self, node: fx.Node) -> ast.expr:
        """A value at its use."""
        self.used(node)
        if node in self.pending:
            return self._written(self.pending.pop(node))
        if node in self.cheap:
            return self._written(self.cheap[node])
        if node in self.names:
            return name_of(self.names[node])
        return self.write.stored(node, self)  # a parameter or a constant

    def used(self, node: fx.Node) -> None:
        self.left[node] -= 1
        if node in self.alias_of:
            self.used(self.alias_of[node])

    def _written(self, item: Step) -> ast.expr:
        found = self.write.step(item, self)
        if self.numbers is None or item.block is not None:
            return found
        return self.numbers.named(found, item.node)

    def assign(self, node: fx.Node, name: str, expr: ast.expr) -> None:
        self.vacate(name, expr)
        self.names[node], self.bound[name] = name, node
        self.write.labels.setdefault(node, name)
        if not (isinstance(expr, ast.Name) and expr.id == name):
            self.statements.append(ast.Assign([ast.Name(name, ast.Store())], expr, lineno=0))

    def _assign_many(self, item: Step, targets: dict[fx.Node, str]) -> None:
        """``values, indices = ...``"""
        expr = self._written(item)
        if isinstance(expr, ast.Tuple) and len(expr.elts) == 1:  # nobody reads the others
            (node,) = (x for x in item.makes if x)
            self.assign(node, targets.get(node) or self._fallback(item, node), expr.elts[0])
            return
        if len(targets) < sum(x is not None for x in item.makes) and item.block is not None:
            theirs = self.write.returned(item.block)
            targets = {n: variable(name) for n, name in zip(item.makes, theirs) if n and name}
        names: list[str] = []
        parts = PARTS.get((item.name, len(item.makes)), ())
        if item.block is None and not targets and parts:
            targets = {n: part for n, part in zip(item.makes, parts) if n}
        for node in item.makes:
            name = "_" if node is None else targets.get(node) or self._fallback(item, node)
            if node in self.write.taken_as and self._kept(name, node):
                name = next((x for x in self.write.taken_as[node] if not self._kept(x, node)), name)
            while name != "_" and name in names:
                name += "_"
            names.append(name)
        for node, name in zip(item.makes, names):
            if node is not None:
                self.vacate(name, expr, [node])
                self.names[node], self.bound[name] = name, node
                self.write.labels.setdefault(node, name)
        target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        self.statements.append(ast.Assign([target], expr, lineno=0))

    def vacate(self, name: str, expr: ast.expr, keeping: Any = ()) -> None:
        """What goes by this name and is read later gets the name that the author kept it under;
        which is none that ``expr``, written after it, reads. What is ``keeping`` it may.
        """
        node = self.bound.get(name)
        if node is None or self.left[node] <= 0 or node in keeping:
            return
        aliases = self.forward.aliases() if self.forward else {}
        other = variable(aliases.get(name, f"{name}_before"))
        read = {x.id for x in ast.walk(expr) if isinstance(x, ast.Name)}
        while other in read or (other in self.bound and self.left[self.bound[other]] > 0):
            other += "_"
        self.statements.append(ast.Assign([ast.Name(other, ast.Store())], name_of(name), lineno=0))
        for held, known in list(self.names.items()):
            if known == name:
                self.names[held] = other
        self.bound[other] = node

    def _kept(self, name: str, node: fx.Node) -> bool:
        """Whether another value goes by this name that is read later."""
        other = self.bound.get(name)
        return other not in (None, node) and self.left[other] > 0

    def _fallback(self, item: Step, node: fx.Node) -> str:
        """A name where the author gave none: that of the first operand if it ends here."""
        for x in item.reads:
            if (name := self.names.get(x)) and self.left[x] <= 0:
                return name
        name = variable(helped(node) or item.name)
        while (name in self.bound and self.left[self.bound[name]] > 0) or name in self.sizes.taken:
            name += "_"
        return name


def _again(step: Step, before: list[Step]) -> bool:
    """Whether a line runs for the next module of a list."""
    home = lambda s: s.block.path.rpartition(".")[0] if s.block else None
    listed = step.block is not None and step.block.path.rpartition(".")[2].isdigit()
    return listed and any(home(x) == home(step) for x in before)
