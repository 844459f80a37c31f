"""The file in Flax's Linen."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from typing import Any

import torch
from flax import linen

from anyjax.flax.codegen.graph.dropout_rates import rate_of
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.merge.classes import merged
from anyjax.flax.codegen.merge.constructor_lines import text
from anyjax.flax.codegen.merge.docstrings import described_parameters, docstring, headline
from anyjax.flax.codegen.merge.shared_class import Class
from anyjax.flax.codegen.module.call_kinds import CallKinds, all_blocks
from anyjax.flax.codegen.module.layers import Layer, constructor
from anyjax.flax.codegen.module.writer import Writer
from anyjax.flax.codegen.python.file_text import LINEN, assembled, check_of, loader_text
from anyjax.flax.codegen.python.linen_snippets import LEVELS, LOADER, OWN, RECURRENT, SEQUENTIAL
from anyjax.flax.codegen.python.snippets import snippets
from anyjax.flax.codegen.python.templates import DTYPES, LIST, expression, fill

AVERAGE = "use_running_average"
FLAGS = dict.fromkeys(("Dropout", "MultiheadAttention"), "deterministic")
FLAGS |= dict.fromkeys(("BatchNorm", "CumulativeBatchNorm"), AVERAGE)
# Linen refuses variables in which "params" stands inside of "params".
RESERVED = frozenset({"name", "parent", "scope", "params", LIST, *dir(linen.Module)})
INFERRED = {"in_features", "num_features", "input_size"}  # Linen takes them from the input
DRAWN = {  # nnx's ways to draw a parameter as Linen's initializers
    r"jnp\.(ones|zeros)\(shape\)": r"nn.initializers.\1",
    r"rngs\.params\.normal\(shape\) \* ([\d.e-]+)": r"nn.initializers.normal(\1)",
    r"nnx\.(initializers\..*)\(rngs\.params\(\), shape\)": r"nn.\1",
}


class Linen:
    """The style of Linen; see ``Style``.

    Parameters and variables get their names when their class is written: until then "".
    """

    constructs = re.compile(r"\bnn\.|self\.(param|variable)\(|\b[A-Z]\w*\(")

    reserved = RESERVED

    def loader_name(self, name: str) -> str:
        """Returns an array's name without its levels, by which the loader finds it."""
        return re.sub(LEVELS, "", name.replace(".", "_"))

    def exposes_weights(self, kinds: CallKinds, block: Block) -> bool:
        """Returns whether others may read its weights: an Embed has them before it is called, other
        layers do not.
        """
        if type(block.module) is torch.nn.Embedding:
            return True
        inside = {n for b in all_blocks(kinds.root) if b.path == block.path for n in b.nodes()}
        owned = [n for n, (kind, _) in kinds.graph.roles.items() if kind and kinds.owns(block, n)]
        return all(user in inside for n in owned for user in n.users if user.op != "output")

    def mode_flags(self, kinds: CallKinds, block: Block) -> list[ast.keyword]:
        if layer := kinds.layer(block):
            return self.layer_flags(layer.name)
        drops = any(rate_of(n) for n in block.items if not isinstance(n, Block))
        trains = drops or any(self.mode_flags(kinds, x) for x in block.children())
        return self.layer_flags("Dropout") if trains else []

    def layer_flags(self, layer: str) -> list[ast.keyword]:
        flag = ast.Name("deterministic", ast.Load())
        return [ast.keyword(FLAGS[layer], flag)] if layer in FLAGS else []

    def construct(self, call: ast.Call) -> ast.expr:
        return call

    def layer(self, layer: Layer) -> ast.expr:
        arguments = [x for x in layer.arguments if x[0] not in INFERRED]
        # Flax's BatchNorm keeps a batch's variance as it is
        is_snippet = layer.is_snippet or layer.name == "BatchNorm"
        name = layer.name.replace("Linear", "Dense")
        return constructor(Layer(name, arguments, is_snippet), "nn")

    def sequential(self, parts: list[ast.expr], kinds: CallKinds, path: str) -> ast.expr:
        has_flags = any(self.mode_flags(kinds, x) for x in kinds.layers if x.path == path)
        name = "SequentialLayers" if has_flags else "nn.Sequential"
        return fill(f"{name}(parts)", {"parts": ast.List(parts, ast.Load())})

    def module_list(self, modules: ast.expr) -> ast.expr:
        return modules

    def module_dict(self, modules: dict[str, ast.expr]) -> ast.expr:
        return ast.Dict([ast.Constant(x) for x in modules], [*modules.values()])

    def parameter(self, drawn: str, shape: ast.expr) -> ast.expr:
        init = next((m.expand(to) for x, to in DRAWN.items() if (m := re.fullmatch(x, drawn))), "")
        if not init:
            drawn = re.sub(r"rngs\.params\.(\w+)\(", r"jax.random.\1(key, ", drawn)
            init = f"lambda key, shape: {drawn}"
        return fill(f"self.param('', {init}, sizes)", {"sizes": shape})

    def table(self, values: ast.expr) -> ast.expr:
        return values

    def buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> ast.expr:
        template = f"self.variable('buffers', '', jnp.zeros, shape, {DTYPES[dtype]})"
        return fill(template, {"shape": shape})

    def is_buffer(self, holder: ast.expr) -> bool:
        return text(holder).startswith("self.variable(")

    def read(self, attribute: ast.expr, holder: ast.expr | None = None) -> ast.expr:
        variable = holder is not None and "self.variable(" in text(holder)
        return fill("x.value", {"x": attribute}) if variable else attribute

    def file(self, writer: Writer, root: Block) -> str:
        merged_classes, configs = merged(writer, root)
        takes = described_parameters(writer, root)
        dicts = _names_of_dicts(merged_classes)
        written = lambda x: self.written(writer, x, takes if x is merged_classes[-1] else "", dicts)
        texts = [*configs.texts(), *map(written, merged_classes)]
        helpers = snippets(writer.shared.snippets, texts, RECURRENT)
        helpers += [SEQUENTIAL] * any("SequentialLayers(" in x for x in texts)
        helpers = [OWN.get(x[6 : x.find("(")], x) for x in helpers]
        file_parts = [x.replace("nnx.", "nn.") for x in helpers] + texts
        loader = LOADER.replace("Whole", merged_classes[-1].name)
        loader = loader_text(loader, writer.spellings, writer.unread_weights())
        loader = _example(writer, root) + loader
        check = check_of(merged_classes[-1].name, LINEN)
        text = assembled(file_parts, loader, check, "from flax import linen as nn")
        return headline(merged_classes[-1].name, "Flax's Linen") + text

    def written(self, writer: Writer, cls: Class, outermost: str, inner_dicts: set[str]) -> str:
        """Returns the text of a class; the outermost one describes its inputs. Dicts with these
        names are attributes of submodules.
        """
        fields = {x: _field(x, cls) for x in cls.parameters}
        kinds = {fields[x]: _annotation(values) for x, values in cls.parameters.items()}
        defaults = [ast.unparse(expression(values[0])) for values in cls.parameters.values()]
        if cls.configured:
            kind = type(cls.instances[0].scope.config).__name__
            fields = {"config": "config"} | fields
            kinds, defaults = {"config": kind} | kinds, [f"{kind}()", *defaults]
        top = [
            f"    {name}: {kind}" + f" = {default}" * bool(outermost)
            for (name, kind), default in zip(kinds.items(), defaults)
        ]
        lines = {
            k: _NnxToLinen(fields, attributes=cls.lines).visit(_with_names(x, k))
            for k, x in cls.lines.items()
        }
        lines = {
            _attribute(k): text(x) for k, x in lines.items() if text(x) != f"self.{_attribute(k)}"
        }
        setup = [f"        self.{name} = {x}" for name, x in lines.items()]
        has_flags = bool(self.mode_flags(writer.kinds, cls.instances[0].block))
        takes = ["self", *cls.code.takes(), *["deterministic=True"] * has_flags]
        dicts = {k for k, x in cls.lines.items() if isinstance(x, ast.Dict)}
        statements = [
            text(_NnxToLinen({}, dicts, inner_dicts, cls.lines).visit(s)) for s in cls.code.body
        ]
        body = docstring(outermost).splitlines()
        body += [f"        {line}" for x in statements for line in x.splitlines()]
        sections = [top, ["    def setup(self):", *setup] if setup else []]
        sections.append([f"    def __call__({', '.join(takes)}):", *body])
        inner = "\n\n".join("\n".join(x) for x in sections if x)
        return f"class {cls.name}(nn.Module):\n{inner}\n"


def _names_of_dicts(classes: Iterable[Class]) -> set[str]:
    """Returns the attributes that are dicts in each class that has them."""
    is_dict = [(k, isinstance(x, ast.Dict)) for cls in classes for k, x in cls.lines.items()]
    return {k for k, x in is_dict if x} - {k for k, x in is_dict if not x}


def _field(name: str, cls: Class) -> str:
    """Returns the attribute for a parameter of the constructor; setup may not assign it again."""
    line = cls.lines.get(name)
    is_taken = line is not None and text(line) != name
    return f"{_attribute(name)}_" if is_taken else _attribute(name)


def _attribute(name: str) -> str:
    """Returns the attribute for one of the author's; Linen's modules have some of their own."""
    return f"{name}_" if name in RESERVED else name


def _annotation(values: Iterable[Any]) -> str:
    """Returns ``int`` or ``float | None``, the type of these values."""
    kinds = dict.fromkeys("None" if x is None else type(x).__name__ for x in values)
    return " | ".join(sorted(kinds, key=lambda x: x == "None"))


def _with_names(line: ast.expr, name: str) -> ast.expr:
    """Names the parameters and variables in a line after its attribute; returns the line."""
    match line:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="param" | "variable")):
            place = next(x for x in line.args if isinstance(x, ast.Constant) and x.value == "")
            place.value = name
        case ast.IfExp(body=yes, orelse=no):
            _with_names(yes, name)
            _with_names(no, name)
        case ast.List(elts=parts):
            for i, x in enumerate(parts):
                _with_names(x, f"{name}_{i}")
        case ast.Dict(keys=keys, values=parts):
            for key, x in zip(keys, parts):
                _with_names(x, f"{name}_{key.value}")  # type: ignore[union-attr]
        case ast.ListComp(elt=ast.Call(args=args) as one, generators=[loop]):
            _with_names(one, name)
            for i, x in enumerate(args):
                if isinstance(x, ast.Constant) and x.value == name:
                    loop.target = ast.Name("i", ast.Store())
                    args[i] = ast.parse(f"f'{name}_{{i}}'", mode="eval").body
    return line


class _NnxToLinen(ast.NodeTransformer):
    """Rewrites code for nnx in Linen's names: functions of ``nn``, fields, members of dicts."""

    def __init__(
        self,
        fields: dict[str, str],
        dicts: Iterable[str] = (),
        inner_dicts: Iterable[str] = (),
        attributes: Collection[str] = (),
    ):
        self.fields, self.dicts = fields, {f"self.{x}" for x in dicts}
        self.attributes = attributes
        self.inner_dicts = inner_dicts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.fields:
            return ast.parse(f"self.{self.fields[node.id]}", mode="eval").body
        return ast.Name("nn", ast.Load()) if node.id == "nnx" else node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        parameters = {x.arg for x in node.args.args}
        inner = _NnxToLinen({k: x for k, x in self.fields.items() if k not in parameters})
        return ast.Lambda(node.args, inner.visit(node.body))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        home = ast.unparse(node.value)
        inner, _, name = home.rpartition(".")
        is_inner = inner.startswith("self.") and name in self.inner_dicts
        if home in self.dicts or is_inner:
            return ast.Subscript(node.value, ast.Constant(node.attr), ast.Load())
        if home == "self" and node.attr in self.attributes:
            return ast.Attribute(node.value, _attribute(node.attr), ast.Load())
        return self.generic_visit(node)  # type: ignore[return-value]


def _example(writer: Writer, root: Block) -> str:
    """Returns ``EXAMPLE``: the shapes of the example's inputs."""
    sizes = lambda shape: tuple(x if isinstance(x, int) else x.node.hint for x in shape)
    values = [n.meta["val"] for n in writer.code_of(root).inputs]
    shapes = [f"jax.ShapeDtypeStruct({sizes(x.shape)}, {DTYPES[x.dtype]})" for x in values]
    comment = "# The shapes of the inputs that this was written with."
    return f"\n\n{comment}\nEXAMPLE = [{', '.join(shapes)}]\n"
