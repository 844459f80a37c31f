"""Modules written as text: beside StableHLO's reference interpreter."""

from __future__ import annotations

import jax
import numpy as np
from jax.interpreters import mlir
from jax.interpreters.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import tojax
from tests.tolerance import assert_close


def called(text: str, *args):
    """The outputs of a module, or of the body of its main function."""
    return tojax.from_stablehlo(text).apply({}, *args)


def function(kinds: str, result: str, body: str) -> str:
    """``main`` with arguments %0, %1, ... of these types; the body ends with a value %out."""
    arguments = ", ".join(f"%{i}: tensor<{kind}>" for i, kind in enumerate(kinds.split()))
    results = ", ".join(f"tensor<{kind}>" for kind in result.split())
    outs = ", ".join(f"%out#{i}" for i in range(len(result.split()))) if " " in result else "%out"
    return f"""module {{ func.func @main({arguments}) -> ({results}) {{
      {body}
      return {outs} : {results}
    }} }}"""


def reference(text: str, *args):
    """What the reference interpreter says."""
    with mlir.make_ir_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        given = [
            ir.DenseElementsAttr.get(np.asarray(x), type=kind)
            for x, kind in zip(
                args,
                ir.FunctionType(module.body.operations[0].type).inputs
                if hasattr(module.body.operations[0], "type")
                else (),
            )
        ]
        found = stablehlo.eval_module(module, given)
        return [np.array(ir.DenseElementsAttr(x)) for x in found]


def same(text: str, *args, reduction: int = 1):
    """The module gives what the reference interpreter gives, in jit and out of it."""
    want = reference(text, *args)
    model = tojax.from_stablehlo(text)
    for run in (model.apply, jax.jit(model.apply)):
        got = jax.tree.leaves(run({}, *args))
        assert_close([np.asarray(x) for x in got], want, reduction=reduction)
    return model
