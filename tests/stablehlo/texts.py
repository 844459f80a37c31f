"""Modules written as text, beside StableHLO's reference interpreter."""

from __future__ import annotations

import jax
import numpy as np
from jax.interpreters import mlir
from jax.interpreters.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import anyjax
from anyjax.stablehlo.core.attributes import dense
from tests.tolerance import assert_close


def function(kinds: str, results: str, body: str) -> str:
    """Writes a module: ``main`` takes %0, %1, ... of these types; its body ends with %out."""
    arguments = ", ".join(f"%{i}: tensor<{kind}>" for i, kind in enumerate(kinds.split()))
    types = [f"tensor<{kind}>" for kind in results.split()]
    outs = [f"%out#{i}" for i in range(len(types))] if len(types) > 1 else ["%out"]
    return f"""module {{ func.func @main({arguments}) -> ({", ".join(types)}) {{
      {body}
      return {", ".join(outs)} : {", ".join(types)}
    }} }}"""


def reference(text: str, *args) -> list[np.ndarray]:
    """Evaluates a module by the reference interpreter."""
    with mlir.make_ir_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        main = next(op for op in module.body.operations if op.name.value == "main")
        kinds = main.arguments
        inputs = [
            ir.DenseElementsAttr.get(np.asarray(x), type=kind.type.element_type)
            for x, kind in zip(args, kinds)
        ]
        return [dense(None, ir.DenseElementsAttr(x)) for x in stablehlo.eval_module(module, inputs)]


def assert_like_reference(text: str, *args, reduction: int = 1):
    """Compares a module with the reference interpreter, under jit and outside of it."""
    want = reference(text, *args)
    model = anyjax.from_stablehlo(text)
    for run in (model.apply, jax.jit(model.apply)):
        got = [np.asarray(x) for x in jax.tree.leaves(run({}, *args))]
        assert_close(got, want, reduction=reduction)
    return model


def called(text: str, *args):
    """Evaluates a module."""
    return anyjax.from_stablehlo(text).apply({}, *args)
