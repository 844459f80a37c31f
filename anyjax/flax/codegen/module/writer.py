"""Blocks as code of Flax classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Any

from torch import fx
from torch.utils import _pytree as pytree

from anyjax.flax.codegen.author.source_lines import forward_of
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.flax.codegen.graph.spelling import Spellings
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.body import Body
from anyjax.flax.codegen.module.call_kinds import CallKinds, Style, all_blocks
from anyjax.flax.codegen.module.calls import Shared
from anyjax.flax.codegen.module.class_code import ClassCode
from anyjax.flax.codegen.module.find_loops import with_loops
from anyjax.flax.codegen.module.forward_constants import ForwardNumbers
from anyjax.flax.codegen.module.operators import Operators, Unwritable
from anyjax.flax.codegen.module.passed_outputs import pass_on_outputs
from anyjax.flax.codegen.module.steps import Step, steps_of
from anyjax.flax.codegen.module.write_loops import LoopNotWritable
from anyjax.flax.codegen.python.peephole import plainer
from anyjax.flax.codegen.python.syntax import free_name
from anyjax.flax.codegen.python.templates import variable


class Writer:
    """Writes blocks.

    Attributes:
      shared: what the bodies know of each other.
      codes: the code of each block's class.
    """

    def __init__(
        self,
        graph: Graph,
        root: Block,
        style: Style,
        torch_types: Collection[type] = (),
        spellings: Spellings | None = None,
    ):
        self.graph, self.root, self.style, self.spellings = graph, root, style, spellings or {}
        operators = Operators(graph)
        self.kinds = CallKinds(graph, root, style, operators.last, self.function, torch_types)
        self.codes: dict[Block, ClassCode] = {}
        self.shared = Shared(self.kinds, operators, self.code_of)
        self.shared.passed_names = pass_on_outputs(
            graph, [x for x in all_blocks(root) if x.path and self.kinds.becomes_class(x)]
        )

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
        steps = self._steps_of(block)
        try:
            body = self._body(
                block, inputs, with_loops(steps, self.graph.roles, self.kinds.last), code
            )
        except LoopNotWritable:
            code.fields.clear()
            code.sizes.clear()
            body = self._body(block, inputs, steps, code)
        code.parameters += code.sizes.values()
        code.body, code.result_names = plainer(body.statements), body.result_names
        code.argument_sizes = body.sizes

    def _steps_of(self, block: Block) -> list[Step]:
        return steps_of(block, self.kinds.is_called, self.kinds.torch_calls)

    def _body(
        self, block: Block, inputs: dict[fx.Node, str], steps: list[Step], code: ClassCode
    ) -> Body:
        """Writes the statements."""
        body = Body(block, inputs, steps, self.shared, code.fields)
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
        first_call = self.shared.first_calls.setdefault(block.path, block)
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
                        leaf_name = self.shared.labels.get(leaf) or f"{name}_{i}"
                        leaf_name = unpacked[i] if len(unpacked) == len(leaves) else leaf_name
                        base = variable(name if len(leaves) == 1 else leaf_name)
                        names[leaf] = free_name(base, names.values())
        for node in block.inputs:
            if node not in names:
                kind, name = self.kinds.role(node)
                base = name.rpartition(".")[2] if kind else re.sub(r"_\d+$", "", node.name)
                names[node] = free_name(variable(base), names.values())
        return names

    def function(self, block: Block) -> ast.expr | None:
        """Returns a module without parameters as a function of one input, None if it is none."""
        if text := self.kinds.activation(block):
            text = text[:-3] if text.endswith("(x)") else f"lambda x: {text}"
            return ast.parse(text, mode="eval").body
        body = Body(block, {block.inputs[0]: "x"}, self._steps_of(block), self.shared, {})
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

    def unread_weights(self) -> set[str]:
        """Returns the arrays of the module's state dict that the file has no place for, with ``*``
        in place of numbers.
        """
        fields = {
            block.prefix + inner: x
            for block, code in self.codes.items()
            for inner, x in code.fields.items()
        }
        torch_parts = {x.path for x in self.kinds.torch_calls if x not in self.kinds.layers}
        homes = {x for x, field in fields.items() if not isinstance(field, Block)}
        homes -= self.shared.constants | torch_parts

        def is_read(name: str) -> bool:
            steps = name.split(".")
            return any(".".join(steps[:i]) in homes for i in range(1, len(steps) + 1))

        names = self.root.module.state_dict()
        unread = {x for x in names if not is_read(x) or x.endswith(".num_batches_tracked")}
        return {re.sub(r"\d+", "*", x) for x in unread}
