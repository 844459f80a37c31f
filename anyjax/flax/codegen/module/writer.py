"""Blocks as code of Flax classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Any

from torch import fx
from torch.utils import _pytree as pytree

from anyjax.flax.codegen.author.source_lines import forward_of
from anyjax.flax.codegen.graph.dropout_rates import rate_of
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.graph.size_guards import size_check
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.body import Body
from anyjax.flax.codegen.module.call_kinds import CallKinds, Style, all_blocks
from anyjax.flax.codegen.module.class_code import ClassCode, Field, canonical_code
from anyjax.flax.codegen.module.dropout import dropout_call, dropout_layer_call
from anyjax.flax.codegen.module.find_loops import with_loops
from anyjax.flax.codegen.module.forward_constants import ForwardNumbers
from anyjax.flax.codegen.module.initial_values import constant_holder, initializer
from anyjax.flax.codegen.module.layers import with_hints
from anyjax.flax.codegen.module.operators import Operators, Unwritable
from anyjax.flax.codegen.module.passed_outputs import pass_on_outputs
from anyjax.flax.codegen.module.steps import Loop, Step, chain_of, steps_of
from anyjax.flax.codegen.module.torch_parts import call_arguments
from anyjax.flax.codegen.module.write_loops import LoopNotWritable, write_loop
from anyjax.flax.codegen.ops import channels_last
from anyjax.flax.codegen.python.peephole import plainer
from anyjax.flax.codegen.python.syntax import assignment, free_name, name_of
from anyjax.flax.codegen.python.templates import attribute, expression, fill, variable


class Writer:
    """Writes blocks.

    Attributes:
      kinds: the form of each call.
      codes: the code of each block's class.
    """

    def __init__(self, graph: Graph, root: Block, style: Style, torch_types: Collection[type] = ()):
        self.graph, self.root, self.style = graph, root, style
        self.operators = Operators(graph)
        self.last = self.operators.last
        self.kinds = CallKinds(graph, root, style, self.last, self.function, torch_types)
        self.codes: dict[Block, ClassCode] = {}
        self.first_calls: dict[str, Block] = {}  # call of each module
        self.snippets: set[str] = set()
        self.labels: dict[fx.Node, str] = {}  # what a value was first called
        self.loops: list[list[str]] = []  # the modules that one call of a loop calls
        self.passed_names = pass_on_outputs(
            graph, [x for x in all_blocks(root) if x.path and self.kinds.becomes_class(x)]
        )

    # ---- one class

    def code_of(self, block: Block) -> ClassCode:
        """Returns the code of a block's class; Unwritable errors collect the blocks around them."""
        if block not in self.codes:
            try:
                self._write_code(block)
            except Unwritable as error:
                error.blocks.append(block)
                raise
        return self.codes[block]

    def _write_code(self, block: Block) -> None:
        inputs = self.named_inputs(block)
        code = ClassCode(type(block.module).__name__, list(inputs), list(inputs.values()), [], {})
        self.codes[block] = code
        steps = self.steps_of(block)
        try:
            body = self.body(block, inputs, with_loops(steps, self.graph.roles, self.last), code)
        except LoopNotWritable:
            code.fields.clear()
            code.sizes.clear()
            body = self.body(block, inputs, steps, code)
        code.parameters += code.sizes.values()
        code.body, code.result_names = plainer(body.statements), body.result_names
        code.argument_sizes = body.sizes

    def steps_of(self, block: Block) -> list[Step]:
        return steps_of(block, self.kinds.is_called, self.kinds.torch_calls)

    def body(
        self, block: Block, inputs: dict[fx.Node, str], steps: list[Step], code: ClassCode
    ) -> Body:
        """Writes the statements."""
        body = Body(block, inputs, steps, self, code.fields)
        config = self.kinds.config(block)
        body.numbers = ForwardNumbers(block.module, config, code.fields, body.sizes)
        body.sizes.asked = code.sizes if block.path else None
        body.write()
        return body

    def named_inputs(self, block: Block) -> dict[fx.Node, str]:
        """Returns the inputs by the names of the author's parameters, in their order."""
        names: dict[fx.Node, str] = {}
        if not block.path:
            for node, (kind, name) in self.graph.roles.items():
                if kind == "input" and node in block.inputs:
                    names[node] = variable(name)
            return names
        first_call = self.first_calls.setdefault(block.path, block)
        if first_call is not block and len(first_call.inputs) == len(block.inputs):
            block_inputs = dict(zip(first_call.inputs, block.inputs))  # as the same code reads them
            code = self.code_of(first_call)
            return {block_inputs[x]: name for x, name in zip(code.inputs, code.parameters)}
        forward = forward_of(block.module.__class__)
        if forward is not None:
            for name, value in self.graph.call_arguments(block.call, forward.parameters()) or ():
                leaves = pytree.tree_leaves(value)
                for i, leaf in enumerate(leaves):
                    if leaf in block.inputs and leaf not in names:
                        unpacked = forward.unpacked().get(name, ())
                        leaf_name = self.labels.get(leaf) or f"{name}_{i}"
                        leaf_name = unpacked[i] if len(unpacked) == len(leaves) else leaf_name
                        base = variable(name if len(leaves) == 1 else leaf_name)
                        names[leaf] = free_name(base, names.values())
        for node in block.inputs:
            if node not in names:
                kind, name = self.kinds.role(node)
                base = name.rpartition(".")[2] if kind else re.sub(r"_\d+$", "", node.name)
                names[node] = free_name(variable(base), names.values())
        return names

    # ---- what a body asks for

    def entry_statements(self, block: Block, inputs: dict[fx.Node, str]) -> list[ast.stmt]:
        """Returns checks of the whole model's inputs, and their transposes to channels last."""
        if block.path:
            return []
        fixed = {node: self.graph.fixed.get(self.graph.roles[node][1]) for node in inputs}
        statements = [
            fixed_shape_check(tuple(node.meta["val"].shape), first, inputs[node])
            for node, first in fixed.items()
            if first is not None
        ]
        shapes = {name: channels_last.shape(node, set()) for node, name in inputs.items()}
        statements += size_check(self.graph.conditions, shapes)
        for node, name in inputs.items():
            if node in self.last:
                statements.append(assignment(name, channels_last.moved_last(name_of(name), node)))
        return statements

    def output(self, node: fx.Node, body: Body) -> ast.expr:
        """Returns a result; the whole model's have torch's order of dimensions."""
        expr = body.value(node)
        return expr if body.block.path else self.operators.in_layout(expr, node, False)

    def returned_value(self, block: Block, results: list[ast.expr]) -> ast.expr:
        """Returns the value of the return statement: one value, or the author's tree of them."""
        if block.path or len(self.graph.leaves()) == 1:
            return results[0] if len(results) == 1 else ast.Tuple(results, ast.Load())
        by_node = dict(zip(block.outputs, results))

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

    def stored_value(self, node: fx.Node, body: Body) -> ast.expr:
        """Returns a parameter, buffer or constant as an attribute."""
        kind, name = self.kinds.role(node)
        if not kind:
            raise Unwritable(f"what {node.name} computes inside of another submodule", node)
        inner = body.block.inner(name)
        home, _, leaf = inner.rpartition(".")
        layer = self.kinds.layer_name(body.block.prefix + home) if home else None
        if layer is not None:  # which keeps it in its own way
            weight = "embedding" if layer == "Embed" else "kernel"
            flax_name = {"weight": weight, "bias": "bias"}[leaf]
            value = self.style.read(attribute(f"{home}.{flax_name}"))
            return fill("x.T", {"x": value}) if layer == "Linear" and leaf == "weight" else value
        holder = self.initial_value(node, kind, name, body.block)
        self.set_field(body, inner, holder)
        return self.style.read(attribute(inner), holder)

    def initial_value(self, node: fx.Node, kind: str, name: str, block: Block) -> ast.expr:
        """Returns the holder of a parameter or constant, of the right shape."""
        module, shape = self.root.module, tuple(node.meta["val"].shape)
        if kind == "param":
            init = initializer(module.get_parameter(name), block.module, block.inner(name))
            sizes = tuple(with_hints(s, "features", f"shape{i}") for i, s in enumerate(shape))
            return self.style.parameter(init, expression(sizes))
        array = self.graph.constants.get(name)
        array = module.get_buffer(name) if array is None else array
        return constant_holder(array, name in module.state_dict(), self.style)

    def step_call(self, step: Step, body: Body) -> ast.expr:
        """Returns the call of an operator or a submodule."""
        if step.block is None:
            call, results = self.operator_call(step.node, body), [step.node]
        else:
            call, results = self.submodule_call(step.block, body), step.block.outputs
            if not (self.kinds.is_layer_like(step.block) or step.block in self.kinds.torch_calls):
                return call  # gradients end inside of it
        stops_gradient = self.operators.gradient_ends.intersection(results)
        return fill("jax.lax.stop_gradient(x)", {"x": call}) if stops_gradient else call

    def write_loop(self, loop: Loop, body: Body) -> None:
        write_loop(loop, body)

    def operator_call(self, node: fx.Node, body: Body) -> ast.expr:
        """Returns the call of an operator, dropout as a layer."""
        if channels_last.operation(node) in channels_last.DROPOUT:
            return dropout_call(node, body, self.style)
        if rate := rate_of(node):
            layer = dropout_layer_call(rate, node, body, self.style)
            return self.operators.expression(node, body, dropout_p=layer)
        return self.operators.expression(node, body)

    def submodule_call(self, block: Block, body: Body) -> ast.expr:
        """Returns the call of a submodule."""
        if block in self.kinds.torch_calls:
            return self.torch_call(block, body)
        if text := self.kinds.activation(block):
            return fill(text, {"x": self.call_arguments(block, body)[0]})
        if (tied_call := self.tied_linear(block, body)) is not None:
            return tied_call
        args = self.call_arguments(block, body)
        call = ast.Call(self.child(block, body), args, self.style.mode_flags(self.kinds, block))
        call.callee = block.path  # type: ignore[attr-defined]
        return call

    def result_names(self, block: Block) -> list[str]:
        """Returns the names of a block's results."""
        return [] if self.kinds.is_layer_like(block) else self.code_of(block).result_names

    def inputs_in_order(self, block: Block) -> list[fx.Node]:
        return block.inputs if self.kinds.is_layer_like(block) else self.code_of(block).inputs

    def tied_linear(self, block: Block, body: Body) -> ast.expr | None:
        """Returns ``self.embed.attend(x)`` for a linear layer with the embedding's weights."""
        if type(block.module).__name__ != "Linear" or len(block.inputs) != 2:
            return None
        if getattr(block.module, "bias", None) is not None:  # attend has no place for it
            return None
        weight = next((n for n in block.inputs if self.kinds.role(n)[0] == "param"), None)
        if weight is None or body.inputs.get(weight):
            return None
        home = self.kinds.role(weight)[1].rpartition(".")[0]
        if self.kinds.layer_name(home) != "Embed":
            return None
        x = next(n for n in block.inputs if n is not weight)
        body.value(weight)
        embedding = attribute(body.block.inner(home))
        return fill("x.attend(value)", {"x": embedding, "value": body.value(x)})

    def call_arguments(self, block: Block, body: Body) -> list[ast.expr]:
        """Returns the arguments of a submodule; a layer gets its input in its output's layout."""
        values = [(n, body.value(n)) for n in self.inputs_in_order(block)]
        if not self.kinds.is_layer_like(block):
            return [x for _, x in values] + [body.sizes(x) for x in self.codes[block].sizes]
        last = self.kinds.wants_last(block)
        return [self.operators.in_layout(x, n, last) for n, x in values[:1]]

    def torch_call(self, block: Block, body: Body) -> ast.expr:
        """Returns the call of a submodule that stays in PyTorch, arrays laid out as there."""
        as_torch = lambda x: self.operators.in_layout(body.value(x), x, False)
        torch_call = self.kinds.torch_calls[block]
        args, words = call_arguments(torch_call, as_torch)
        words += self.style.mode_flags(self.kinds, block)
        call = ast.Call(self.child(block, body), args, words)
        outputs = torch_call.outputs
        if block in self.kinds.layers and len(outputs) == 1:
            return fill("x[0]", {"x": call})
        if len(outputs) == 1 and outputs[0] in self.last:
            return channels_last.moved_last(call, outputs[0])
        return call

    def child(self, block: Block, body: Body) -> ast.expr:
        """Returns ``self.name``, and sets the field that constructs it."""
        inner, layer = body.block.inner(block.path), self.kinds.layer(block)
        if layer is not None:
            if len(block.outputs) > 1 and not layer.is_snippet:
                raise Unwritable(
                    f"calls of {block.path} that torch does not tell apart", block.outputs[1]
                )
            self.snippets |= {layer.name} if layer.is_snippet else set()
            self.set_field(body, inner, self.style.layer(layer))
        elif self.kinds.sequential(block):
            for element in chain_of(block) or ():
                self.child(element, body)
        else:
            is_class = self.kinds.is_called(block) and not self.kinds.activation(block)
            if is_class:
                self.check_same_calls(block)
            self.set_field(body, inner, block if is_class else self.function(block))
        return attribute(inner)

    def check_same_calls(self, block: Block) -> None:
        """Refuses a call that does something else than the first call of the module."""
        first_call = self.first_calls.setdefault(block.path, block)
        code, first_code = self.code_of(first_call), self.code_of(block)
        if first_call is not block and (
            canonical_code(code.parameters, code.body)
            != canonical_code(first_code.parameters, first_code.body)
        ):
            raise Unwritable(f"calls of {block.path} that do different things", block.outputs[0])

    def set_reads(self, step: Step, body: Body) -> None:
        """Sets the fields that a step needs which another step stands for in a loop."""
        for x in step.reads:
            if self.kinds.role(x)[0]:
                self.stored_value(x, body)
        if step.block is not None and not self.kinds.activation(step.block):
            self.child(step.block, body)
            self.inputs_in_order(step.block)

    def interface(self, block: Block) -> tuple[list[int], list, list[str]]:
        """Returns the order in which a block takes its inputs, its sizes and its mode flags."""
        sizes = [] if self.kinds.is_layer_like(block) else list(self.code_of(block).sizes)
        mode_flags = [*map(ast.dump, self.style.mode_flags(self.kinds, block))]
        return [block.inputs.index(x) for x in self.inputs_in_order(block)], sizes, mode_flags

    def function(self, block: Block) -> ast.expr | None:
        """Returns a module without parameters as a function of one input, None if it is none."""
        if text := self.kinds.activation(block):
            text = text[:-3] if text.endswith("(x)") else f"lambda x: {text}"
            return ast.parse(text, mode="eval").body
        body = Body(block, {block.inputs[0]: "x"}, self.steps_of(block), self, {})
        body.sizes.inline = True
        body.write()
        last = body.statements[-1]
        if len(body.statements) > 1 or not isinstance(last, ast.Return):
            return None
        value: Any = last.value
        if isinstance(value, ast.Call) and ast.unparse(value) == f"{ast.unparse(value.func)}(x)":
            return value.func
        arguments = ast.arguments([], [ast.arg("x")], None, [], [], None, [])
        return ast.Lambda(arguments, value)

    def set_field(self, body: Body, inner: str, holder: Field) -> None:
        """Sets a submodule or a parameter under its dotted name, in the class that has it."""
        path = body.block.prefix + inner
        owners = [b for b in self.kinds.layers if b.path and path.startswith(b.prefix)]
        owners = [b for b in owners if len(b.path) > len(body.block.path)]
        owners = [b for b in owners if self.kinds.becomes_class(b)]
        owner = max(owners, key=lambda b: len(b.path), default=None)
        fields = body.fields if owner is None else self.code_of(owner).fields
        fields.setdefault(inner if owner is None else owner.inner(path), holder)


def fixed_shape_check(shape: tuple[int, ...], first: int, name: str) -> ast.stmt:
    """Returns the statement that refuses other sizes from a dimension on."""
    shape_text, sizes = f"{name}.shape[{first}:]" if first else f"{name}.shape", shape[first:]
    message = f"{name} has to have the sizes {sizes}, by which others were decided"
    return ast.parse(f"if {shape_text} != {sizes}:\n    raise ValueError({message!r})").body[0]
