"""Flax classes: one for each class of torch, instances told apart by their arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch.utils import _pytree as pytree

from tojax.flax.codegen.author.source_lines import forward_of
from tojax.flax.codegen.graph.dropout_rates import rate_of
from tojax.flax.codegen.graph.graph import Graph
from tojax.flax.codegen.graph.size_guards import check
from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.module.body import Body
from tojax.flax.codegen.module.call_kinds import Kinds, all_blocks
from tojax.flax.codegen.module.dropout import dropped, dropping
from tojax.flax.codegen.module.find_loops import rolled
from tojax.flax.codegen.module.forward_constants import ForwardNumbers
from tojax.flax.codegen.module.initial_values import buffer, initializer
from tojax.flax.codegen.module.layers import hinted
from tojax.flax.codegen.module.operators import Unwritable
from tojax.flax.codegen.module.passed_outputs import hand_on
from tojax.flax.codegen.module.same_calls import canonical
from tojax.flax.codegen.module.steps import Step, chained, steps_of
from tojax.flax.codegen.module.torch_parts import spelled
from tojax.flax.codegen.module.write_loops import Unrollable
from tojax.flax.codegen.ops import channels_last
from tojax.flax.codegen.python.peephole import plainer
from tojax.flax.codegen.python.templates import attribute, expression, fill, name_of, variable


@dataclass(eq=False)
class Made:
    """A class as one block has it.

    Attributes:
      name: of the torch class.
      parameters: arguments of ``__call__``.
      body: its statements.
      fields: what ``__init__`` sets, by attribute: (expression, note).
      returned: what its results are called.
      sizes: those that the caller has to tell.
      measured: those that it takes of its arguments.
      optional: parameters that are None where they are not given.
    """

    name: str
    inputs: list[fx.Node]
    parameters: list[str]
    body: list[ast.stmt]
    fields: dict[str, ast.expr]
    returned: list[str] = field(default_factory=list)
    sizes: dict[Any, str] = field(default_factory=dict)
    measured: Any = None
    optional: set[str] = field(default_factory=set)

    def takes(self) -> list[str]:
        """The parameters as they stand in the definition."""
        return [f"{x}=None" if x in self.optional else x for x in self.parameters]


class Writer(Kinds):
    """Writes blocks; ``made`` holds the classes by the call of their block."""

    def __init__(self, graph: Graph, root: Block, style: Any, left: Collection[type] = ()):
        super().__init__(graph, root, style, left)
        self.made: dict[Block, Made] = {}
        self.first: dict[str, Block] = {}  # call of each module
        self.snippets: set[str] = set()
        self.labels: dict[fx.Node, str] = {}  # what a value was first called
        self.loops: list[list[str]] = []  # the modules that one call of a loop calls
        self.taken_as = hand_on(graph, [x for x in all_blocks(root) if x.path and self.is_class(x)])

    # ---- one class

    def make(self, block: Block) -> Made:
        if block not in self.made:
            try:
                self._make(block)
            except Unwritable as error:
                error.blocks.append(block)
                raise
        return self.made[block]

    def _make(self, block: Block) -> None:
        inputs = self.named_inputs(block)
        made = Made(type(block.module).__name__, list(inputs), list(inputs.values()), [], {})
        self.made[block] = made
        steps = steps_of(block, self.whole, self.parts)
        try:
            body = self.body(block, inputs, rolled(steps, self.graph.roles, self.last), made)
        except Unrollable:
            made.fields.clear()
            made.sizes.clear()
            body = self.body(block, inputs, steps, made)
        made.parameters += made.sizes.values()
        made.body, made.returned = plainer(body.statements), body.returned
        made.measured = body.sizes

    def body(self, block: Block, inputs: dict[fx.Node, str], steps: list[Step], made: Made) -> Body:
        """The statements."""
        body = Body(block, inputs, steps, self)
        body.fields = made.fields
        config = self.config(block)
        body.numbers = ForwardNumbers(block.module, config, made.fields, body.sizes)
        body.sizes.asked = made.sizes if block.path else None
        body.run()
        return body

    def named_inputs(self, block: Block) -> dict[fx.Node, str]:
        """The inputs by the names of the author's parameters, in their order."""
        found: dict[fx.Node, str] = {}
        if not block.path:
            for node, (kind, name) in self.graph.roles.items():
                if kind == "input" and node in block.inputs:
                    found[node] = variable(name)
            return found
        first = self.first.setdefault(block.path, block)
        if first is not block and len(first.inputs) == len(block.inputs):
            mine = dict(zip(first.inputs, block.inputs))  # as the same code reads them
            one = self.make(first)
            return {mine[x]: name for x, name in zip(one.inputs, one.parameters)}
        forward = forward_of(block.module.__class__)
        given = set(block.inputs)
        if forward is not None:
            for name, value in self.graph.given(block.call, forward.parameters()) or ():
                parts = pytree.tree_leaves(value)
                for i, leaf in enumerate(parts):
                    if leaf in given and leaf not in found:
                        unpacked = forward.unpacked().get(name, ())
                        part = self.labels.get(leaf) or f"{name}_{i}"
                        part = unpacked[i] if len(unpacked) == len(parts) else part
                        base = variable(name if len(parts) == 1 else part)
                        while base in found.values():
                            base += "_"
                        found[leaf] = base
        for node in block.inputs:
            if node not in found:
                kind, name = self.role(node)
                base = variable(
                    name.rpartition(".")[2] if kind else re.sub(r"_\d+$", "", node.name)
                )
                while base in found.values():
                    base += "_"
                found[node] = base
        return found

    # ---- what a body asks for

    def entry(self, block: Block, inputs: dict[fx.Node, str]) -> list[ast.stmt]:
        """The whole takes its inputs as torch does, and turns those that convolutions read."""
        found: list[ast.stmt] = []
        for node, name in inputs.items():
            first = self.graph.fixed.get(self.graph.roles[node][1]) if not block.path else None
            if first is not None:
                found.append(only_of(tuple(node.meta["val"].shape), first, name))
        if not block.path:
            shapes = {name: channels_last.shape(node, set()) for node, name in inputs.items()}
            found += check(self.graph.conditions, shapes)
        for node, name in inputs.items():
            if not block.path and node in self.last:
                dims = channels_last.moved([*range(channels_last.rank(node))])
                turned = fill("x.transpose(*dims)", {"x": name_of(name), "dims": dims})
                found.append(ast.Assign([ast.Name(name, ast.Store())], turned, lineno=0))
        return found

    def output(self, node: fx.Node, body: Body) -> ast.expr:
        """A result; those of the whole have their dimensions as in torch."""
        expr = body.value(node)
        return expr if body.block.path else self.operators.turned(expr, node, False)

    def leaves(self) -> list[fx.Node]:
        """The results of the whole, each as often as the author returns it."""
        return [x for x in pytree.tree_leaves(self.graph.outputs) if isinstance(x, fx.Node)]

    def result(self, block: Block, results: list[ast.expr]) -> ast.expr:
        """What is returned: one value, or as the author returns them."""
        if block.path or len(self.leaves()) == 1:
            return results[0] if len(results) == 1 else ast.Tuple(results, ast.Load())
        by_node = dict(zip(block.outputs, results))

        def build(part: Any) -> ast.expr | None:
            if isinstance(part, fx.Node):
                return by_node[part]
            if isinstance(part, dict):
                kept = {k: v for k, x in part.items() if (v := build(x)) is not None}
                return (
                    ast.Dict([ast.Constant(k) for k in kept], list(kept.values())) if kept else None
                )
            if isinstance(part, (list, tuple)):
                parts = [v for x in part if (v := build(x)) is not None]
                return ast.Tuple(parts, ast.Load()) if parts else None
            return None

        return build(self.graph.outputs) or ast.Constant(None)

    def stored(self, node: fx.Node, body: Body) -> ast.expr:
        """A parameter, buffer or constant as an attribute."""
        kind, name = self.role(node)
        if not kind:
            raise Unwritable(f"what {node.name} computes inside of another submodule", node)
        path = body.block.path
        inner = name[len(path) + 1 :] if path else name
        home, _, leaf = inner.rpartition(".")
        owner = self.owner(f"{path}.{home}" if path and home else home or path) if home else None
        if owner is not None:  # a layer of Flax keeps it in its own way
            kept = {"weight": "kernel", "bias": "bias"} | (
                {"weight": "embedding"} if owner == "Embed" else {}
            )
            found = self.style.read(attribute(f"{home}.{kept[leaf]}"))
            return fill("x.T", {"x": found}) if owner == "Linear" and leaf == "weight" else found
        what = self.initial(node, kind, name, body.block)
        self.place(body, inner, what)
        return self.style.read(attribute(inner), what)

    def owner(self, path: str) -> str | None:
        """The layer of Flax that a module is, where it is called."""
        found = next((layer for b, layer in self.layers.items() if b.path == path and layer), None)
        return found.name.removeprefix("Padded") if found else None

    def initial(self, node: fx.Node, kind: str, name: str, block: Block) -> ast.expr:
        """What holds it in the class, of the right shape."""
        value = self.root.module.get_parameter(name) if kind == "param" else None
        shape = tuple(node.meta["val"].shape)
        if kind == "param":
            inner = name[len(block.path) + 1 :] if block.path else name
            drawn = initializer(value, block.module, inner)
            sizes = tuple(hinted(s, "features", f"shape{i}") for i, s in enumerate(shape))
            return self.style.parameter(drawn, expression(sizes))
        array = self.graph.constants.get(name)
        if array is None:
            array = self.root.module.get_buffer(name)
        return buffer(array, name in self.root.module.state_dict(), self.style)

    def step(self, step: Step, body: Body) -> ast.expr:
        """The call of an operator or a submodule."""
        if step.block is not None:
            found = self.called(step.block, body)
            whole = self.plain(step.block) or step.block in self.parts
            ends = bool(whole and self.operators.muted & {*step.block.outputs})
        else:
            found, ends = self.operator(step.node, body), step.node in self.operators.muted
        return fill("jax.lax.stop_gradient(x)", {"x": found}) if ends else found

    def operator(self, node: fx.Node, body: Body) -> ast.expr:
        """The call of an operator, with dropout as a layer."""
        if channels_last.operation(node) in channels_last.DROPOUT:
            return dropped(node, body, self.style)
        if rate := rate_of(node):
            layer = dropping(rate, node, body, self.style)
            return self.operators.written(node, body, dropout_p=layer)
        return self.operators.written(node, body)

    def called(self, block: Block, body: Body) -> ast.expr:
        """The call of a submodule."""
        if block in self.parts:
            return self.part(block, body)
        if text := self.activation(block):
            return fill(text, {"x": self.arguments(block, body)[0]})
        if (tied := self.attended(block, body)) is not None:
            return tied
        args = self.arguments(block, body)
        call = ast.Call(self.child(block, body), args, self.style.told(self, block))
        call.callee = block.path  # type: ignore[attr-defined]
        return call

    def returned(self, block: Block) -> list[str]:
        """What a block calls its results."""
        return [] if self.plain(block) else self.make(block).returned

    def order(self, block: Block) -> list[fx.Node]:
        return list(block.inputs) if self.plain(block) else self.make(block).inputs

    def attended(self, block: Block, body: Body) -> ast.expr | None:
        """A linear layer with the embedding's weights: ``self.embed.attend(x)``."""
        if type(block.module).__name__ != "Linear" or len(block.inputs) != 2:
            return None
        if getattr(block.module, "bias", None) is not None:  # attend has no place for it
            return None
        weight = next((n for n in block.inputs if self.role(n)[0] == "param"), None)
        if weight is None or body.inputs.get(weight):
            return None
        home = self.role(weight)[1].rpartition(".")[0]
        if self.owner(home) != "Embed":
            return None
        x = next(n for n in block.inputs if n is not weight)
        body.value(weight)
        inner = home[len(body.block.path) + 1 :] if body.block.path else home
        return fill("x.attend(value)", {"x": attribute(inner), "value": body.value(x)})

    def arguments(self, block: Block, body: Body) -> list[ast.expr]:
        """What a submodule is called with; a layer gets its channels where it gives them."""
        values = [(n, body.value(n)) for n in self.order(block)]
        if not self.plain(block):
            return [x for _, x in values] + [body.sizes(x) for x in self.made[block].sizes]
        return [self.operators.turned(x, n, self.wants_last(block)) for n, x in values[:1]]

    def part(self, block: Block, body: Body) -> ast.expr:
        """The call of a submodule as PyTorch has it, arrays laid out as there."""
        turned = lambda x: self.operators.turned(body.value(x), x, False)
        args, words = spelled(self.parts[block], turned)
        found = ast.Call(self.child(block, body), args, words + self.style.told(self, block))
        outputs = self.parts[block].outputs
        if block in self.layers and len(outputs) == 1:
            return fill("x[0]", {"x": found})
        if len(outputs) == 1 and outputs[0] in self.last:
            dims = channels_last.moved([*range(channels_last.rank(outputs[0]))])
            return fill("x.transpose(*dims)", {"x": found, "dims": dims})
        return found

    def child(self, block: Block, body: Body) -> ast.expr:
        """``self.name``, whose constructor is noted."""
        inner = block.path[len(body.block.path) + 1 :] if body.block.path else block.path
        layer = self.layer(block)
        if layer is not None:
            if len(block.outputs) > 1 and not layer.own:
                raise Unwritable(
                    f"calls of {block.path} that torch does not tell apart", block.outputs[1]
                )
            self.snippets |= {layer.name} if layer.own else set()
            self.place(body, inner, self.style.layer(layer))
        elif self.sequential(block):
            for part in chained(block) or ():
                self.child(part, body)
        else:
            own = self.whole(block) and not self.activation(block)
            if own:
                self.agreeing(block)
            self.place(body, inner, block if own else self.function(block))
        return attribute(inner)

    def agreeing(self, block: Block) -> None:
        """Refuses a call that the class of the module's first call does not serve."""
        first = self.first.setdefault(block.path, block)
        one, other = self.make(first), self.make(block)
        if first is not block and (
            canonical(one.parameters, one.body) != canonical(other.parameters, other.body)
        ):
            raise Unwritable(f"calls of {block.path} that do different things", block.outputs[0])

    def noted(self, step: Step, body: Body) -> None:
        """Sets what a step reads of the class, where another one is written in its place."""
        for x in step.reads:
            if self.role(x)[0]:
                self.stored(x, body)
        if step.block is not None and not self.activation(step.block):
            self.child(step.block, body)
            self.order(step.block)

    def interface(self, block: Block) -> Any:
        """In which order a block takes its inputs, by the places that they have in ``inputs``."""
        sizes = [] if self.plain(block) else list(self.make(block).sizes)
        told = [*map(ast.dump, self.style.told(self, block))]
        return [block.inputs.index(x) for x in self.order(block)], sizes, told

    def function(self, block: Block) -> ast.expr | None:
        """A module without parameters as a function of its one input; None if it is none."""
        if text := self.activation(block):
            text = text[:-3] if text.endswith("(x)") else f"lambda x: {text}"
            return ast.parse(text, mode="eval").body
        inner = Body(block, {block.inputs[0]: "x"}, steps_of(block, self.whole, self.parts), self)
        inner.sizes.inline = True
        inner.run()
        last = inner.statements[-1]
        if len(inner.statements) > 1 or not isinstance(last, ast.Return):
            return None
        value: Any = last.value
        if isinstance(value, ast.Call) and ast.unparse(value) == f"{ast.unparse(value.func)}(x)":
            return value.func
        arguments = ast.arguments([], [ast.arg("x")], None, [], [], None, [])
        return ast.Lambda(arguments, value)

    def place(self, body: Body, inner: str, what: Any) -> None:
        """Notes a submodule or a parameter under its dotted name, in the class that keeps it."""
        home, whole = body.block.path, f"{body.block.path}.{inner}" if body.block.path else inner
        owners = [b for b in self.layers if b.path and whole.startswith(f"{b.path}.")]
        owners = [b for b in owners if len(b.path) > len(home) and self.is_class(b)]
        if not owners:
            body.fields.setdefault(inner, what)
            return
        owner = max(owners, key=lambda b: len(b.path))
        self.make(owner).fields.setdefault(whole[len(owner.path) + 1 :], what)

    def is_class(self, block: Block) -> bool:
        """Whether a block becomes a class."""
        return self.whole(block) and not self.plain(block)


def only_of(shape: tuple[int, ...], first: int, name: str) -> ast.stmt:
    """Refuses an input of other sizes from a dimension on."""
    part, sizes = f"{name}.shape[{first}:]" if first else f"{name}.shape", shape[first:]
    message = f"{name} has to have the sizes {sizes}, by which others were decided"
    return ast.parse(f"if {part} != {sizes}:\n    raise ValueError({message!r})").body[0]
