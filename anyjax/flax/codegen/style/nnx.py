"""The file in Flax's nnx."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import torch
from flax import nnx

from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.merge.classes import merged
from anyjax.flax.codegen.merge.constructor_lines import text
from anyjax.flax.codegen.merge.docstrings import described_parameters, docstring, headline
from anyjax.flax.codegen.merge.shared_class import Class
from anyjax.flax.codegen.module.call_kinds import CallKinds
from anyjax.flax.codegen.module.layers import Layer, constructor
from anyjax.flax.codegen.module.writer import Writer
from anyjax.flax.codegen.python.file_text import NNX, NNX_LOADER, assembled, check_of, loader_text
from anyjax.flax.codegen.python.snippets import snippets
from anyjax.flax.codegen.python.syntax import name_of
from anyjax.flax.codegen.python.templates import DTYPES, LIST, expression, fill

MODES = ("deterministic", "use_running_average")  # which train() and eval() set wherever they are


class Nnx:
    """The style of nnx; see ``Style``."""

    constructs = re.compile("rngs")  # what a line has that makes more than a plain value
    reserved = frozenset({*dir(nnx.Module), *MODES, LIST})

    def loader_name(self, name: str) -> str:
        """Returns an array's own name."""
        return name

    def exposes_weights(self, kinds: CallKinds, block: Block) -> bool:
        """Returns True: other modules may read the weights of a layer."""
        return True

    def mode_flags(self, kinds: CallKinds, block: Block) -> list[ast.keyword]:
        """Returns no arguments: in nnx the module knows whether this is training."""
        return []

    def layer_flags(self, layer: str) -> list[ast.keyword]:
        """Returns no arguments, for a layer of Flax as well."""
        return []

    def construct(self, call: ast.Call) -> ast.expr:
        rngs = ast.keyword("rngs", name_of("rngs"))
        return ast.Call(call.func, call.args, [*call.keywords, rngs])

    def layer(self, layer: Layer) -> ast.expr:
        # Flax's BatchNorm keeps a batch's variance as it is
        is_snippet = layer.is_snippet or layer.name == "BatchNorm"
        return self.construct(constructor(replace(layer, is_snippet=is_snippet), "nnx"))

    def sequential(self, parts: list[ast.expr], kinds: CallKinds, path: str) -> ast.expr:
        return fill("nnx.Sequential(*parts)", {"parts": parts})

    def module_list(self, modules: ast.expr) -> ast.expr:
        return fill("nnx.List(modules)", {"modules": modules})

    def module_dict(self, modules: dict[str, ast.expr]) -> ast.expr:
        words = [ast.keyword(k, x) for k, x in modules.items()]
        return ast.Call(ast.parse("nnx.Dict", mode="eval").body, [], words)

    def parameter(self, drawn: str, shape: ast.expr) -> ast.expr:
        return fill(f"nnx.Param({drawn})", {"shape": shape})

    def table(self, values: ast.expr) -> ast.expr:
        return fill("nnx.Variable(values)", {"values": values})

    def buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> ast.expr:
        return fill(f"Buffer(jnp.zeros(shape, {DTYPES[dtype]}))", {"shape": shape})

    def is_buffer(self, holder: ast.expr) -> bool:
        return text(holder).startswith("Buffer(")

    def read(self, attribute: ast.expr, holder: ast.expr | None = None) -> ast.expr:
        return fill("x[...]", {"x": attribute})

    def file(self, writer: Writer, root: Block) -> str:
        """Returns the file; the parameters of the outermost class have defaults."""
        merged_classes, configs = merged(writer, root)
        takes = described_parameters(writer, root)
        classes = [
            *configs.texts(),
            *(_class(x, takes if x is merged_classes[-1] else "") for x in merged_classes),
        ]
        texts = [*snippets(writer.shared.snippets, classes), *classes]
        texts = [x.replace(", **mode", "") for x in texts]
        texts = [x.replace('mode["deterministic"]', "dropout.deterministic") for x in texts]
        check = check_of(merged_classes[-1].name, NNX)
        loader = loader_text(NNX_LOADER, writer.spellings, writer.unread_weights())
        text = assembled(texts, loader, check, "from flax import nnx")
        return headline(merged_classes[-1].name, "Flax's nnx") + text


def _class(cls: Class, outermost: str) -> str:
    """Returns the text of a class; the outermost one describes its inputs."""
    lines = [f"self.{name} = {text(x)}" for name, x in cls.lines.items()]
    init = "\n".join("        " + x for x in lines) or "        pass"
    body = "\n".join(f"        {x}" for s in cls.code.body for x in text(s).splitlines())
    takes = "".join(f", {x}" for x in cls.code.takes())
    parameters = [_default(name, values[0], outermost) for name, values in cls.parameters.items()]
    if cls.configured:
        kind = type(cls.instances[0].scope.config).__name__
        parameters.insert(0, f"config: {kind}" + (f" = {kind}()" if outermost else ""))
    arguments = ", ".join(["self", *parameters, "*", "rngs: nnx.Rngs"])
    return (
        f"class {cls.name}(nnx.Module):\n"
        f"    def __init__({arguments}):\n{init}\n\n"
        f"    def __call__(self{takes}):\n{docstring(outermost)}{body}\n"
    )


def _default(name: str, value: object, outermost: str) -> str:
    return f"{name}={ast.unparse(expression(value))}" if outermost else name
