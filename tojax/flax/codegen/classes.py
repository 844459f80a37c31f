"""Flax classes: one for each class of torch, instances told apart by their arguments."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from tojax.flax.codegen import layouts
from tojax.flax.codegen.authors import forward_of
from tojax.flax.codegen.blocks import Block
from tojax.flax.codegen.body import Body, name_of, variable
from tojax.flax.codegen.exporting import Graph
from tojax.flax.codegen.initial import buffer, initializer
from tojax.flax.codegen.layers import Layer, constructor, hinted, layer_of
from tojax.flax.codegen.operators import Operators, Unwritable
from tojax.flax.codegen.steps import Step, chained, steps_of
from tojax.flax.codegen.template import expression, fill

LIST = "layers_"  # where a Sequential that is a class of its own has its modules


@dataclass(eq=False)
class Made:
    """A class as one block has it.

    Attributes:
      name: of the torch class.
      parameters: arguments of ``__call__``.
      body: its statements.
      fields: what ``__init__`` sets, by attribute: (expression, note).
    """

    name: str
    inputs: list[fx.Node]
    parameters: list[str]
    body: list[ast.stmt]
    fields: dict[str, ast.expr]
    returned: list[str] = field(default_factory=list)
    sizes: dict[Any, str] = field(default_factory=dict)


class Writer:
    """Writes blocks; ``made`` holds the classes by the call of their block."""

    def __init__(self, graph: Graph, root: Block):
        self.graph, self.root = graph, root
        self.layers: dict[Block, Layer | None] = {}
        self.operators = Operators(graph)
        self.last = self.operators.last
        for block in all_blocks(root):
            self.layer(block)
        self.made: dict[Block, Made] = {}
        self.snippets: set[str] = set()
        self.labels: dict[fx.Node, str] = {}  # what a value was first called

    # ---- what becomes of a block

    def layer(self, block: Block) -> Layer | None:
        if block not in self.layers:
            own = not any(self.role(x)[0] for x in block.inputs)
            self.layers[block] = layer_of(block) if own else None
        return self.layers[block]

    def whole(self, block: Block) -> bool:
        """Whether a block is called; others are taken apart into their caller."""
        if self.layer(block):
            return True
        stored = any(self.role(x)[0] for n in block.nodes() for x in n.all_input_nodes)
        return stored and any(self.own(block, x) for n in block.nodes() for x in n.all_input_nodes)

    def role(self, node: fx.Node) -> tuple[str, str]:
        kind, name = self.graph.roles.get(node, ("", ""))
        return (kind, name) if kind not in ("", "input") else ("", "")

    def own(self, block: Block, node: fx.Node) -> bool:
        kind, name = self.role(node)
        return bool(kind) and name.startswith(f"{block.path}." if block.path else "")

    # ---- one class

    def make(self, block: Block) -> Made:
        if block not in self.made:
            inputs = self.named_inputs(block)
            made = Made(type(block.module).__name__, list(inputs), list(inputs.values()), [], {})
            self.made[block] = made
            body = Body(block, inputs, steps_of(block, self.whole), self)
            body.fields = made.fields
            body.sizes.asked = made.sizes if block.path else None
            body.run()
            made.parameters += made.sizes.values()
            made.body, made.returned = body.statements, body.returned
        return self.made[block]

    def named_inputs(self, block: Block) -> dict[fx.Node, str]:
        """The inputs by the names of the author's parameters, in their order."""
        found: dict[fx.Node, str] = {}
        if not block.path:
            for node, (kind, name) in self.graph.roles.items():
                if kind == "input" and node in block.inputs:
                    found[node] = variable(name)
            return found
        forward = forward_of(block.module.__class__)
        signature = self.graph.signatures.get(block.path)
        given = set(block.inputs)
        if signature is not None and forward is not None and block.call == block.path:
            from torch.utils import _pytree as pytree

            leaves = [self.graph.known.get(getattr(x, "name", "")) for x in signature.inputs]
            args, kwargs = pytree.tree_unflatten(leaves, signature.in_spec)
            places = forward.parameters()
            pairs = [
                *zip(places, args),
                *sorted(kwargs.items(), key=lambda x: places.index(x[0]) if x[0] in places else 99),
            ]
            for name, value in pairs:
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
        for node, name in inputs.items():
            if not block.path and node in self.last:
                dims = layouts.moved([*range(layouts.rank(node))])
                turned = fill("x.transpose(*dims)", {"x": name_of(name), "dims": dims})
                found.append(ast.Assign([ast.Name(name, ast.Store())], turned, lineno=0))
        return found

    def output(self, node: fx.Node, body: Body) -> ast.expr:
        """A result; those of the whole have their dimensions as in torch."""
        expr = body.value(node)
        return expr if body.block.path else self.operators.turned(expr, node, False)

    def result(self, block: Block, results: list[ast.expr]) -> ast.expr:
        """What is returned: one value, or as the author returns them."""
        if len(results) == 1 or block.path:
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
            found = fill("x[...]", {"x": attribute(f"{home}.{kept[leaf]}")})
            return fill("x.T", {"x": found}) if owner == "Linear" and leaf == "weight" else found
        self.place(body, inner, self.initial(node, kind, name, body.block))
        return fill("x[...]", {"x": attribute(inner)})

    def owner(self, path: str) -> str | None:
        """The layer of Flax that a module is, where it is called."""
        found = next((b for b in self.layers if b.path == path and self.layers[b]), None)
        return self.layers[found].name if found else None  # type: ignore[union-attr]

    def initial(self, node: fx.Node, kind: str, name: str, block: Block) -> ast.expr:
        """``nnx.Param(...)`` of the right shape."""
        value = self.root.module.get_parameter(name) if kind == "param" else None
        shape = tuple(node.meta["val"].shape)
        if kind == "param":
            text = initializer(value)
            return fill(
                f"nnx.Param({text})",
                {"shape": expression(tuple(hinted(s, "features") for s in shape))},
            )
        array = self.graph.constants.get(name)
        if array is None:
            array = self.root.module.get_buffer(name)
        return buffer(array, saved=name in self.root.module.state_dict())

    def step(self, step: Step, body: Body) -> ast.expr:
        if step.block is not None:
            if (tied := self.attended(step.block, body)) is not None:
                return tied
            args = self.arguments(step.block, body)
            return ast.Call(self.child(step.block, body), args, [])
        if layouts.operation(step.node) in layouts.DROPOUT:
            return self.dropped(step.node, body)
        return self.operators.written(step.node, body)

    def dropped(self, node: fx.Node, body: Body) -> ast.expr:
        """``F.dropout``: a layer of Flax that the class gets, so that training mode has it."""
        x, rate = body.value(node.args[0]), node.args[1]
        if not rate:
            return x
        text = f"nnx.Dropout({rate}, rngs=rngs)"
        name = "dropout"
        while name in body.fields and ast.unparse(body.fields[name]) != text:
            name += "_"
        body.fields[name] = ast.parse(text, mode="eval").body
        return ast.Call(attribute(name), [x], [])

    def returned(self, block: Block) -> list[str]:
        """What a block calls its results."""
        return [] if self.layer(block) else self.make(block).returned

    def order(self, block: Block) -> list[fx.Node]:
        return list(block.inputs) if self.layer(block) else self.make(block).inputs

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
        if self.layer(block) is None:
            return [x for _, x in values] + [body.sizes(x) for x in self.made[block].sizes]
        last = block.outputs[0] in self.last
        return [self.operators.turned(x, n, last) for n, x in values[:1]]

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
            self.place(body, inner, constructor(layer))
        else:
            self.place(body, inner, block if self.whole(block) else self.function(block))
        return attribute(inner)

    def function(self, block: Block) -> ast.expr:
        """A module without parameters as a function of its one input."""
        inner = Body(block, {block.inputs[0]: "x"}, steps_of(block, self.whole), self)
        inner.sizes.inline = True
        inner.run()
        last = inner.statements[-1]
        if len(inner.statements) > 1 or not isinstance(last, ast.Return):
            raise Unwritable(f"{type(block.module).__name__} in a Sequential", next(block.nodes()))
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
        return self.whole(block) and not self.layer(block) and chained(block) is None

    def loop(self, step: Step, body: Body, carry: ast.expr) -> tuple[ast.expr, ast.expr]:
        """(the call of one layer, the layers)."""
        args = []
        first = step.blocks[0]
        for block in step.blocks:
            self.child(block, body)
        for node in self.order(first):
            inside = first.inputs.index(node)
            args.append(carry if inside == step.carry else body.value(node))
        if self.layer(first) is not None:
            args = args[:1]
        elif self.whole(first):
            args += [body.sizes(x) for x in self.agreed([self.make(x) for x in step.blocks])]
        home = first.path.rpartition(".")[0]
        inner = home[len(body.block.path) + 1 :] if body.block.path else home
        return ast.Call(name_of(step.name), args, []), self.part(step, home, attribute(inner))

    def agreed(self, made: list[Made]) -> dict[Any, str]:
        """The sizes that a loop tells each of its layers: those that any of them asks for."""
        asked: dict[Any, str] = {}
        for one in made:
            asked = {**one.sizes, **asked}
        for one in made:
            parameters = one.parameters[: len(one.inputs)]
            names = {size: one.sizes.get(size, name) for size, name in asked.items()}
            if len({*parameters, *names.values()}) < len(parameters) + len(names):
                raise NotImplementedError("layers of a loop that call one size by another's name")
            one.parameters, one.sizes = parameters + list(names.values()), names
        return asked

    def part(self, step: Step, home: str, layers: ast.expr) -> ast.expr:
        """Of a list's modules those that a loop calls."""
        start, stop = (int(step.blocks[i].path.rpartition(".")[2]) + i % 2 for i in (0, -1))
        count = len([*self.root.module.get_submodule(home).children()])
        if (start, stop) == (0, count):
            return layers
        cut = ast.Slice(ast.Constant(start) if start else None, ast.Constant(stop))
        return ast.Subscript(layers, cut, ast.Load())

    def first(self, step: Step, body: Body) -> ast.expr:
        """What goes into a loop, with its channels where the first module wants them."""
        block, node = step.blocks[0], step.reads[step.carry]
        expr = body.value(node)
        return (
            self.operators.turned(expr, node, block.outputs[0] in self.last)
            if self.layer(block)
            else expr
        )


def only_of(shape: tuple[int, ...], first: int, name: str) -> ast.stmt:
    """Refuses an input of other sizes from a dimension on."""
    part, sizes = f"{name}.shape[{first}:]" if first else f"{name}.shape", shape[first:]
    message = f"{name} has to have the sizes {sizes}, by which others were decided"
    return ast.parse(f"if {part} != {sizes}:\n    raise ValueError({message!r})").body[0]


def all_blocks(block: Block):
    """A block and those inside it."""
    yield block
    for child in block.children():
        yield from all_blocks(child)


def attribute(path: str) -> ast.expr:
    """``layers.0.mlp`` -> ``self.layers[0].mlp``."""
    path = f"{LIST}.{path}".rstrip(".") if not path or path[0].isdigit() else path
    text = "".join(f"[{x}]" if x.isdigit() else f".{x}" for x in path.split("."))
    return ast.parse(f"self{text}", mode="eval").body
