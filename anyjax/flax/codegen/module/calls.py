"""Values as expressions: calls of operators and of submodules, and the fields that these need."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import fx

from anyjax.flax.codegen.author.source_lines import forward_of
from anyjax.flax.codegen.graph.dropout_rates import rate_of
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.module.call_kinds import CallKinds
from anyjax.flax.codegen.module.class_code import ClassCode, Field, canonical_code
from anyjax.flax.codegen.module.forward_constants import ForwardNumbers
from anyjax.flax.codegen.module.initial_values import constant_holder, initializer
from anyjax.flax.codegen.module.layers import Layer, positional, with_hints
from anyjax.flax.codegen.module.operators import Operators, Unwritable
from anyjax.flax.codegen.module.steps import Step, chain_of
from anyjax.flax.codegen.module.torch_parts import call_arguments
from anyjax.flax.codegen.module.variables import Variables
from anyjax.flax.codegen.ops import channels_last
from anyjax.flax.codegen.python.sizes import DEFAULTS, Sizes
from anyjax.flax.codegen.python.syntax import free_name, name_of
from anyjax.flax.codegen.python.templates import attribute, expression, fill, variable


@dataclass(eq=False)
class Shared:
    """Holds what all bodies of a file share.

    Attributes:
      kinds: the form of each call.
      code_of: writes the class of another block.
      passed_names: parameters that values are passed to which several layers return.
      first_calls: the first call of each module.
      labels: the variables in which values were first stored.
      loops: the modules that one call of a loop calls.
      snippets: the layers that the file brings along.
      constants: arrays of the weights that are written as expressions.
    """

    kinds: CallKinds
    operators: Operators
    code_of: Callable[[Block], ClassCode]
    passed_names: dict[fx.Node, list[str]] = field(default_factory=dict)
    first_calls: dict[str, Block] = field(default_factory=dict)
    labels: dict[fx.Node, str] = field(default_factory=dict)
    loops: list[list[str]] = field(default_factory=list)
    snippets: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)


class Calls(Variables):
    """The values of a block.

    Attributes:
      fields: the fields that the class needs for it, by attribute.
      uses: how often each value is read.
      numbers: the author's terms for numbers.
    """

    def __init__(
        self,
        block: Block,
        inputs: dict[fx.Node, str],
        steps: list[Step],
        shared: Shared,
        fields: dict[str, Field],
    ):
        super().__init__(block, inputs, sizes_of(block, inputs, shared.kinds.last), shared.labels)
        self.steps, self.shared, self.fields = steps, shared, fields
        self.kinds, self.operators, self.code_of = shared.kinds, shared.operators, shared.code_of
        self.graph, self.style, self.last = self.kinds.graph, self.kinds.style, self.kinds.last
        self.pending: dict[fx.Node, Step] = {}
        self.cheap: dict[fx.Node, Step] = {}  # written again at each use
        self.reads_left.update(x for item in steps for x in item.reads)
        self.reads_left.update(x for item in steps if item.loop for x in item.loop.inner())
        self.reads_left.update(block.outputs if block.path else self.graph.leaves())
        self.uses = Counter(self.reads_left)
        self.numbers: ForwardNumbers | None = None

    def value(self, node: fx.Node) -> ast.expr:
        """Returns the expression of a value at its use."""
        self.count_read(node)
        if node in self.pending:
            return self.expression(self.pending.pop(node))
        if node in self.cheap:
            return self.expression(self.cheap[node])
        if node in self.names:
            return name_of(self.names[node])
        return self.stored_value(node)  # a parameter or a constant

    def expression(self, step: Step) -> ast.expr:
        expr = self.step_call(step)
        if self.numbers is None or step.block is not None:
            return expr
        return self.numbers.name_numbers(expr, step.node)

    def step_call(self, step: Step) -> ast.expr:
        """Returns the call of an operator or a submodule."""
        if step.block is None:
            call, results = self.operator_call(step.node), [step.node]
        else:
            call, results = self.submodule_call(step.block), step.block.outputs
            if not (self.kinds.is_layer_like(step.block) or step.block in self.kinds.torch_calls):
                return call  # gradients end inside of it
        stops_gradient = self.operators.gradient_ends.intersection(results)
        return fill("jax.lax.stop_gradient(x)", {"x": call}) if stops_gradient else call

    def operator_call(self, node: fx.Node) -> ast.expr:
        """Returns the call of an operator, dropout as a layer."""
        rate = rate_of(node)
        if channels_last.operation(node) in channels_last.DROPOUT:
            x = self.value(node.args[0])
            if not rate:
                return x
            layer = self.dropout_layer(rate)
            return ast.Call(layer.func, [x], layer.keywords)
        overrides = {"dropout_p": self.dropout_layer(rate)} if rate else {}
        return self.operators.expression(node, self.value, self.sizes, **overrides)

    def dropout_layer(self, rate: float) -> ast.Call:
        """Returns the call of a dropout layer without its input; adds the layer to the class."""
        layer = self.style.layer(Layer("Dropout", positional(rate=rate)))
        name = dropout_name(rate, self.block)
        same_code = lambda x: isinstance(x, ast.AST) and ast.unparse(x) == ast.unparse(layer)
        name = free_name(name, {k for k, x in self.fields.items() if not same_code(x)})
        self.fields[name] = layer
        return ast.Call(attribute(name), [], self.style.layer_flags("Dropout"))

    def submodule_call(self, block: Block) -> ast.expr:
        """Returns the call of a submodule."""
        if block in self.kinds.torch_calls:
            return self.torch_call(block)
        if text := self.kinds.activation(block):
            return fill(text, {"x": self.call_arguments(block)[0]})
        if (tied_call := self.tied_linear(block)) is not None:
            return tied_call
        args = self.call_arguments(block)
        call = ast.Call(self.child(block), args, self.style.mode_flags(self.kinds, block))
        call.callee = block.path  # type: ignore[attr-defined]
        return call

    def names_of_results(self, block: Block) -> list[str]:
        """Returns the names of a block's results."""
        return [] if self.kinds.is_layer_like(block) else self.code_of(block).result_names

    def inputs_in_order(self, block: Block) -> list[fx.Node]:
        return block.inputs if self.kinds.is_layer_like(block) else self.code_of(block).inputs

    def tied_linear(self, block: Block) -> ast.expr | None:
        """Returns ``self.embed.attend(x)`` for a linear layer with the embedding's weights."""
        if type(block.module).__name__ != "Linear" or len(block.inputs) != 2:
            return None
        if getattr(block.module, "bias", None) is not None:  # attend has no place for it
            return None
        weight = next((n for n in block.inputs if self.kinds.role(n)[0] == "param"), None)
        if weight is None or self.inputs.get(weight):
            return None
        home = self.kinds.role(weight)[1].rpartition(".")[0]
        if self.kinds.layer_name(home) != "Embed":
            return None
        x = next(n for n in block.inputs if n is not weight)
        self.value(weight)
        embedding = attribute(self.block.inner(home))
        return fill("x.attend(value)", {"x": embedding, "value": self.value(x)})

    def call_arguments(self, block: Block) -> list[ast.expr]:
        """Returns the arguments of a submodule; a layer gets its input in its output's layout."""
        values = [(n, self.value(n)) for n in self.inputs_in_order(block)]
        if not self.kinds.is_layer_like(block):
            return [x for _, x in values] + [self.sizes(x) for x in self.code_of(block).sizes]
        last = self.kinds.wants_last(block)
        return [self.operators.in_layout(x, n, last) for n, x in values[:1]]

    def torch_call(self, block: Block) -> ast.expr:
        """Returns the call of a submodule that stays in PyTorch, arrays laid out as there."""
        as_torch = lambda x: self.operators.in_layout(self.value(x), x, False)
        torch_call = self.kinds.torch_calls[block]
        args, words = call_arguments(torch_call, as_torch)
        words += self.style.mode_flags(self.kinds, block)
        call = ast.Call(self.child(block), args, words)
        outputs = torch_call.outputs
        if block in self.kinds.layers and len(outputs) == 1:
            return fill("x[0]", {"x": call})
        if len(outputs) == 1 and outputs[0] in self.last:
            return channels_last.moved_last(call, outputs[0])
        return call

    def child(self, block: Block) -> ast.expr:
        """Returns ``self.name``, and sets the field that constructs it."""
        inner, layer = self.block.inner(block.path), self.kinds.layer(block)
        if layer is not None:
            if len(block.outputs) > 1 and not layer.is_snippet:
                raise Unwritable(
                    f"calls of {block.path} that torch does not tell apart", block.outputs[1]
                )
            if layer.is_snippet or layer.name == "BatchNorm":
                self.shared.snippets.add(layer.name)
            self.set_field(inner, self.style.layer(layer))
        elif self.kinds.sequential(block):
            for element in chain_of(block) or ():
                self.child(element)
        else:
            is_class = self.kinds.is_called(block) and not self.kinds.activation(block)
            if is_class:
                self.check_same_calls(block)
            self.set_field(inner, block if is_class else self.kinds.function(block))
        return attribute(inner)

    def check_same_calls(self, block: Block) -> None:
        """Refuses a call that does something else than the first call of the module."""
        first_call = self.shared.first_calls.setdefault(block.path, block)
        code, first_code = self.code_of(first_call), self.code_of(block)
        if first_call is not block and (
            canonical_code(code.parameters, code.body)
            != canonical_code(first_code.parameters, first_code.body)
        ):
            raise Unwritable(f"calls of {block.path} that do different things", block.outputs[0])

    def stored_value(self, node: fx.Node) -> ast.expr:
        """Returns a parameter, buffer or constant as an attribute."""
        kind, name = self.kinds.role(node)
        if not kind:
            raise Unwritable(f"what {node.name} computes inside of another submodule", node)
        inner = self.block.inner(name)
        home, _, leaf = inner.rpartition(".")
        layer = self.kinds.layer_name(self.block.prefix + home) if home else None
        if layer is not None:  # which keeps it in its own way
            weight = "embedding" if layer == "Embed" else "kernel"
            flax_name = {"weight": weight, "bias": "bias"}[leaf]
            value = self.style.read(attribute(f"{home}.{flax_name}"))
            return fill("x.T", {"x": value}) if layer == "Linear" and leaf == "weight" else value
        holder = self.initial_value(node, kind, name)
        self.set_field(inner, holder)
        return self.style.read(attribute(inner), holder)

    def initial_value(self, node: fx.Node, kind: str, name: str) -> ast.expr:
        """Returns the holder of a parameter or constant, of the right shape."""
        module, shape = self.kinds.root.module, tuple(node.meta["val"].shape)
        if kind == "param":
            init = initializer(
                module.get_parameter(name), self.block.module, self.block.inner(name)
            )
            sizes = tuple(with_hints(s, "features", f"shape{i}") for i, s in enumerate(shape))
            return self.style.parameter(init, expression(sizes))
        array = self.graph.constants.get(name)
        array = module.get_buffer(name) if array is None else array
        holder = constant_holder(array, name in module.state_dict(), self.style)
        if not self.style.is_buffer(holder):
            self.shared.constants.add(name)
        return holder

    def set_reads(self, step: Step) -> None:
        """Sets the fields that a step needs which another step stands for in a loop."""
        for x in step.reads:
            if self.kinds.role(x)[0]:
                self.stored_value(x)
        if step.block is not None and not self.kinds.activation(step.block):
            self.child(step.block)
            self.inputs_in_order(step.block)

    def interface(self, block: Block) -> tuple[list[int], list, list[str]]:
        """Returns the order in which a block takes its inputs, its sizes and its mode flags."""
        sizes = [] if self.kinds.is_layer_like(block) else list(self.code_of(block).sizes)
        mode_flags = [*map(ast.dump, self.style.mode_flags(self.kinds, block))]
        return [block.inputs.index(x) for x in self.inputs_in_order(block)], sizes, mode_flags

    def set_field(self, inner: str, holder: Field) -> None:
        """Sets a submodule or a parameter under its dotted name, in the class that has it."""
        path = self.block.prefix + inner
        owners = [b for b in self.kinds.layers if b.path and path.startswith(b.prefix)]
        owners = [b for b in owners if len(b.path) > len(self.block.path)]
        owners = [b for b in owners if self.kinds.becomes_class(b)]
        owner = max(owners, key=lambda b: len(b.path), default=None)
        fields = self.fields if owner is None else self.code_of(owner).fields
        fields.setdefault(inner if owner is None else owner.inner(path), holder)


def sizes_of(block: Block, inputs: dict[fx.Node, str], last: set[fx.Node]) -> Sizes:
    """Returns the names of the inputs' sizes: the author's, where channels are not moved."""
    forward = forward_of(block.module.__class__)
    shapes = {name: channels_last.shape(node, last) for node, name in inputs.items()}
    sizes = forward.sizes() if forward else {}
    for name in (name for node, name in inputs.items() if node in last):
        count = len(shapes[name])
        author_names = {k: n for k, n in sizes.items() if k[0] == name}
        sizes = {k: n for k, n in sizes.items() if k[0] != name}
        default_names = channels_last.channels_moved_last(
            DEFAULTS.get(count, [f"size_{i}" for i in range(count)])
        )
        sizes |= {(name, d): n for d, n in enumerate(default_names)}
        sizes |= {(name, channels_last.place(d, count)): n for (_, d), n in author_names.items()}
    statements = {forward.statement(n) for n in block.nodes()} if forward else set()
    assigned = {variable(t) for s in statements if s for t in s.targets if t}
    return Sizes(shapes, sizes, set(inputs.values()) | assigned)


def dropout_name(rate: float, block: Block) -> str:
    """Returns the author's attribute for the rate, if exactly one has it, or ``dropout``."""
    module = block.module
    children = {x.path.rpartition(".")[2] for x in block.children()}
    layers = {k: x.p for k, x in module.named_children() if isinstance(x, torch.nn.Dropout)}
    numbers = {k: x for k, x in vars(module).items() if "drop" in k and isinstance(x, float)}
    candidates = [k for k, x in (layers | numbers).items() if x == rate and k not in children]
    return candidates[0] if len(candidates) == 1 else "dropout"
