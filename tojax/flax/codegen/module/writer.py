"""Blocks as code of Flax classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Any

from torch import fx
from torch.utils import _pytree as pytree

from tojax.flax.codegen.author.source_lines import forward_of
from tojax.flax.codegen.graph.dropout_rates import rate_of
from tojax.flax.codegen.graph.graph import Graph
from tojax.flax.codegen.graph.size_guards import size_check
from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.module.body import Body
from tojax.flax.codegen.module.call_kinds import CallKinds, all_blocks
from tojax.flax.codegen.module.class_code import ClassCode
from tojax.flax.codegen.module.dropout import dropout_call, dropout_layer_call
from tojax.flax.codegen.module.find_loops import with_loops
from tojax.flax.codegen.module.forward_constants import ForwardNumbers
from tojax.flax.codegen.module.initial_values import constant_holder, initializer
from tojax.flax.codegen.module.layers import with_hints
from tojax.flax.codegen.module.operators import Unwritable
from tojax.flax.codegen.module.passed_outputs import pass_on_outputs
from tojax.flax.codegen.module.same_calls import canonical_code
from tojax.flax.codegen.module.steps import Step, chain_of, steps_of
from tojax.flax.codegen.module.style import Style
from tojax.flax.codegen.module.torch_parts import call_arguments
from tojax.flax.codegen.module.write_loops import LoopNotWritable
from tojax.flax.codegen.ops import channels_last
from tojax.flax.codegen.python.peephole import plainer
from tojax.flax.codegen.python.syntax import name_of
from tojax.flax.codegen.python.templates import attribute, expression, fill, variable


class Writer(CallKinds):
    """Writes blocks; ``codes`` has the code of each block's class."""

    def __init__(self, graph: Graph, root: Block, style: Style, torch_types: Collection[type] = ()):
        super().__init__(graph, root, style, torch_types)
        self.codes: dict[Block, ClassCode] = {}
        self.first_calls: dict[str, Block] = {}  # call of each module
        self.snippets: set[str] = set()
        self.labels: dict[fx.Node, str] = {}  # what a value was first called
        self.loops: list[list[str]] = []  # the modules that one call of a loop calls
        self.passed_names = pass_on_outputs(
            graph, [x for x in all_blocks(root) if x.path and self.becomes_class(x)]
        )

    # ---- one class

    def code_of(self, block: Block) -> ClassCode:
        """Returns the code of a block's class; Unwritable errors learn the blocks they are in."""
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
        steps = steps_of(block, self.is_called, self.torch_calls)
        try:
            body = self.body(block, inputs, with_loops(steps, self.graph.roles, self.last), code)
        except LoopNotWritable:
            code.fields.clear()
            code.sizes.clear()
            body = self.body(block, inputs, steps, code)
        code.parameters += code.sizes.values()
        code.body, code.result_names = plainer(body.statements), body.result_names
        code.argument_sizes = body.sizes

    def body(
        self, block: Block, inputs: dict[fx.Node, str], steps: list[Step], code: ClassCode
    ) -> Body:
        """Writes the statements."""
        body = Body(block, inputs, steps, self)
        body.fields = code.fields
        config = self.config(block)
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
        block_inputs_ = set(block.inputs)
        if forward is not None:
            for name, value in self.graph.call_arguments(block.call, forward.parameters()) or ():
                leaves = pytree.tree_leaves(value)
                for i, leaf in enumerate(leaves):
                    if leaf in block_inputs_ and leaf not in names:
                        unpacked = forward.unpacked().get(name, ())
                        leaf_name = self.labels.get(leaf) or f"{name}_{i}"
                        leaf_name = unpacked[i] if len(unpacked) == len(leaves) else leaf_name
                        base = variable(name if len(leaves) == 1 else leaf_name)
                        while base in names.values():
                            base += "_"
                        names[leaf] = base
        for node in block.inputs:
            if node not in names:
                kind, name = self.role(node)
                base = variable(
                    name.rpartition(".")[2] if kind else re.sub(r"_\d+$", "", node.name)
                )
                while base in names.values():
                    base += "_"
                names[node] = base
        return names

    # ---- what a body asks for

    def entry_statements(self, block: Block, inputs: dict[fx.Node, str]) -> list[ast.stmt]:
        """Returns checks of the inputs' sizes, and transposes to channels last."""
        statements: list[ast.stmt] = []
        for node, name in inputs.items():
            first_fixed = (
                self.graph.fixed.get(self.graph.roles[node][1]) if not block.path else None
            )
            if first_fixed is not None:
                statements.append(
                    fixed_shape_check(tuple(node.meta["val"].shape), first_fixed, name)
                )
        if not block.path:
            shapes = {name: channels_last.shape(node, set()) for node, name in inputs.items()}
            statements += size_check(self.graph.conditions, shapes)
        for node, name in inputs.items():
            if not block.path and node in self.last:
                dims = channels_last.channels_moved_last([*range(channels_last.rank(node))])
                transposed = fill("x.transpose(*dims)", {"x": name_of(name), "dims": dims})
                statements.append(ast.Assign([ast.Name(name, ast.Store())], transposed, lineno=0))
        return statements

    def output(self, node: fx.Node, body: Body) -> ast.expr:
        """Returns a result; those of the whole model have their dimensions as in torch."""
        expr = body.value(node)
        return expr if body.block.path else self.operators.in_layout(expr, node, False)

    def leaves(self) -> list[fx.Node]:
        """Returns the results of the whole model, each as often as the author returns it."""
        return [x for x in pytree.tree_leaves(self.graph.outputs) if isinstance(x, fx.Node)]

    def returned_value(self, block: Block, results: list[ast.expr]) -> ast.expr:
        """Returns the value of the return statement: one value, or the author's tree of them."""
        if block.path or len(self.leaves()) == 1:
            return results[0] if len(results) == 1 else ast.Tuple(results, ast.Load())
        by_node = dict(zip(block.outputs, results))

        def build(tree: Any) -> ast.expr | None:
            if isinstance(tree, fx.Node):
                return by_node[tree]
            if isinstance(tree, dict):
                members = {k: v for k, x in tree.items() if (v := build(x)) is not None}
                return (
                    ast.Dict([ast.Constant(k) for k in members], list(members.values()))
                    if members
                    else None
                )
            if isinstance(tree, (list, tuple)):
                elements = [v for x in tree if (v := build(x)) is not None]
                return ast.Tuple(elements, ast.Load()) if elements else None
            return None

        return build(self.graph.outputs) or ast.Constant(None)

    def stored_value(self, node: fx.Node, body: Body) -> ast.expr:
        """Returns a parameter, buffer or constant as an attribute."""
        kind, name = self.role(node)
        if not kind:
            raise Unwritable(f"what {node.name} computes inside of another submodule", node)
        path = body.block.path
        inner = name[len(path) + 1 :] if path else name
        home, _, leaf = inner.rpartition(".")
        owner = self.owner(f"{path}.{home}" if path and home else home or path) if home else None
        if owner is not None:  # a layer of Flax keeps it in its own way
            flax_names = {"weight": "kernel", "bias": "bias"} | (
                {"weight": "embedding"} if owner == "Embed" else {}
            )
            value = self.style.read(attribute(f"{home}.{flax_names[leaf]}"))
            return fill("x.T", {"x": value}) if owner == "Linear" and leaf == "weight" else value
        holder = self.initial_value(node, kind, name, body.block)
        self.set_field(body, inner, holder)
        return self.style.read(attribute(inner), holder)

    def owner(self, path: str) -> str | None:
        """Returns the layer of Flax that a module is, where it is called."""
        owner = next(
            (candidate for b, candidate in self.layers.items() if b.path == path and candidate),
            None,
        )
        return owner.name.removeprefix("Padded") if owner else None

    def initial_value(self, node: fx.Node, kind: str, name: str, block: Block) -> ast.expr:
        """Returns the holder of a parameter or constant, of the right shape."""
        value = self.root.module.get_parameter(name) if kind == "param" else None
        shape = tuple(node.meta["val"].shape)
        if kind == "param":
            inner = name[len(block.path) + 1 :] if block.path else name
            init = initializer(value, block.module, inner)
            sizes = tuple(with_hints(s, "features", f"shape{i}") for i, s in enumerate(shape))
            return self.style.parameter(init, expression(sizes))
        array = self.graph.constants.get(name)
        if array is None:
            array = self.root.module.get_buffer(name)
        return constant_holder(array, name in self.root.module.state_dict(), self.style)

    def step_call(self, step: Step, body: Body) -> ast.expr:
        """Returns the call of an operator or a submodule."""
        if step.block is not None:
            call = self.submodule_call(step.block, body)
            in_layout = self.is_layer_like(step.block) or step.block in self.torch_calls
            stops_gradient = bool(
                in_layout and self.operators.gradient_ends & {*step.block.outputs}
            )
        else:
            call, stops_gradient = (
                self.operator_call(step.node, body),
                step.node in self.operators.gradient_ends,
            )
        return fill("jax.lax.stop_gradient(x)", {"x": call}) if stops_gradient else call

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
        if block in self.torch_calls:
            return self.torch_call(block, body)
        if text := self.activation(block):
            return fill(text, {"x": self.call_arguments(block, body)[0]})
        if (tied_call := self.tied_linear(block, body)) is not None:
            return tied_call
        args = self.call_arguments(block, body)
        call = ast.Call(self.child(block, body), args, self.style.mode_flags(self, block))
        call.callee = block.path  # type: ignore[attr-defined]
        return call

    def result_names(self, block: Block) -> list[str]:
        """Returns the names of a block's results."""
        return [] if self.is_layer_like(block) else self.code_of(block).result_names

    def inputs_in_order(self, block: Block) -> list[fx.Node]:
        return list(block.inputs) if self.is_layer_like(block) else self.code_of(block).inputs

    def tied_linear(self, block: Block, body: Body) -> ast.expr | None:
        """Returns ``self.embed.attend(x)`` for a linear layer with the embedding's weights."""
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

    def call_arguments(self, block: Block, body: Body) -> list[ast.expr]:
        """Returns the arguments of a submodule; a layer gets its input in the
        layout of its output.
        """
        values = [(n, body.value(n)) for n in self.inputs_in_order(block)]
        if not self.is_layer_like(block):
            return [x for _, x in values] + [body.sizes(x) for x in self.codes[block].sizes]
        return [self.operators.in_layout(x, n, self.wants_last(block)) for n, x in values[:1]]

    def torch_call(self, block: Block, body: Body) -> ast.expr:
        """Returns the call of a submodule that stays in PyTorch, arrays laid out as there."""
        as_torch = lambda x: self.operators.in_layout(body.value(x), x, False)
        args, words = call_arguments(self.torch_calls[block], as_torch)
        call = ast.Call(self.child(block, body), args, words + self.style.mode_flags(self, block))
        outputs = self.torch_calls[block].outputs
        if block in self.layers and len(outputs) == 1:
            return fill("x[0]", {"x": call})
        if len(outputs) == 1 and outputs[0] in self.last:
            dims = channels_last.channels_moved_last([*range(channels_last.rank(outputs[0]))])
            return fill("x.transpose(*dims)", {"x": call, "dims": dims})
        return call

    def child(self, block: Block, body: Body) -> ast.expr:
        """Returns ``self.name``, and sets the field that constructs it."""
        inner = block.path[len(body.block.path) + 1 :] if body.block.path else block.path
        layer = self.layer(block)
        if layer is not None:
            if len(block.outputs) > 1 and not layer.is_snippet:
                raise Unwritable(
                    f"calls of {block.path} that torch does not tell apart", block.outputs[1]
                )
            self.snippets |= {layer.name} if layer.is_snippet else set()
            self.set_field(body, inner, self.style.layer(layer))
        elif self.sequential(block):
            for element in chain_of(block) or ():
                self.child(element, body)
        else:
            is_class = self.is_called(block) and not self.activation(block)
            if is_class:
                self.check_same_calls(block)
            self.set_field(body, inner, block if is_class else self.function(block))
        return attribute(inner)

    def check_same_calls(self, block: Block) -> None:
        """Refuses a call that the class of the module's first call does not serve."""
        first_call = self.first_calls.setdefault(block.path, block)
        code, first_code = self.code_of(first_call), self.code_of(block)
        if first_call is not block and (
            canonical_code(code.parameters, code.body)
            != canonical_code(first_code.parameters, first_code.body)
        ):
            raise Unwritable(f"calls of {block.path} that do different things", block.outputs[0])

    def set_reads(self, step: Step, body: Body) -> None:
        """Sets the fields that a step reads, where another step is written in its place."""
        for x in step.reads:
            if self.role(x)[0]:
                self.stored_value(x, body)
        if step.block is not None and not self.activation(step.block):
            self.child(step.block, body)
            self.inputs_in_order(step.block)

    def interface(self, block: Block) -> Any:
        """Returns the order in which a block takes its inputs, its sizes and its mode flags."""
        sizes = [] if self.is_layer_like(block) else list(self.code_of(block).sizes)
        mode_flags = [*map(ast.dump, self.style.mode_flags(self, block))]
        return [block.inputs.index(x) for x in self.inputs_in_order(block)], sizes, mode_flags

    def function(self, block: Block) -> ast.expr | None:
        """Returns a module without parameters as a function of one input, None if it is none."""
        if text := self.activation(block):
            text = text[:-3] if text.endswith("(x)") else f"lambda x: {text}"
            return ast.parse(text, mode="eval").body
        body = Body(
            block, {block.inputs[0]: "x"}, steps_of(block, self.is_called, self.torch_calls), self
        )
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

    def set_field(self, body: Body, inner: str, holder: Any) -> None:
        """Sets a submodule or a parameter under its dotted name, in the class that has it."""
        owner_path, full_path = (
            body.block.path,
            f"{body.block.path}.{inner}" if body.block.path else inner,
        )
        owners = [b for b in self.layers if b.path and full_path.startswith(f"{b.path}.")]
        owners = [b for b in owners if len(b.path) > len(owner_path) and self.becomes_class(b)]
        if not owners:
            body.fields.setdefault(inner, holder)
            return
        owner = max(owners, key=lambda b: len(b.path))
        self.code_of(owner).fields.setdefault(full_path[len(owner.path) + 1 :], holder)

    def becomes_class(self, block: Block) -> bool:
        """Returns whether a block becomes a class."""
        return self.is_called(block) and not self.is_layer_like(block)


def fixed_shape_check(shape: tuple[int, ...], first: int, name: str) -> ast.stmt:
    """Returns the statement that refuses other sizes from a dimension on."""
    shape_text, sizes = f"{name}.shape[{first}:]" if first else f"{name}.shape", shape[first:]
    message = f"{name} has to have the sizes {sizes}, by which others were decided"
    return ast.parse(f"if {shape_text} != {sizes}:\n    raise ValueError({message!r})").body[0]
