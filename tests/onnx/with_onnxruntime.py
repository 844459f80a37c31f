"""Models of one node, and whether onnxruntime and the conversion of them agree."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
from onnx import helper, numpy_helper

import anyjax
from tests.onnx.agree import runtime
from tests.tolerance import assert_close

OPSETS = {"": 21, "ai.onnx.ml": 3, "com.microsoft": 1}


def node(
    op: str,
    inputs: dict[str, np.ndarray | None],
    outputs: int = 1,
    constants: tuple[str, ...] = (),
    opsets: dict[str, int] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """Returns a model of one node; ``constants`` are inputs that it holds itself."""
    domain, _, name = op.rpartition("::")
    names = [name if x is not None else "" for name, x in inputs.items()]
    outs = [f"out{i}" for i in range(outputs)]
    describe = lambda name, x: helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
    )
    arrays = {name: x for name, x in inputs.items() if x is not None}
    graph = helper.make_graph(
        [helper.make_node(name, names, outs, domain=domain, **attributes)],
        "graph",
        [describe(name, x) for name, x in arrays.items() if name not in constants],
        [helper.make_empty_tensor_value_info(name) for name in outs],
        [numpy_helper.from_array(arrays[name], name) for name in constants],
    )
    imports = [helper.make_opsetid(*x) for x in (OPSETS | (opsets or {})).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray | None]) -> list[Any]:
    """Returns onnxruntime's outputs."""
    return runtime(model, *(inputs[x.name] for x in model.graph.input))


def converted(model: onnx.ModelProto, inputs: dict[str, np.ndarray | None]) -> list[jax.Array]:
    """Returns the outputs of the converted model."""
    names = {x.name for x in model.graph.input}
    out = anyjax.from_onnx(model)(**{name: x for name, x in inputs.items() if name in names})
    return list(out.values()) if len(model.graph.output) > 1 else [out]


def assert_agrees(
    op: str,
    inputs: dict[str, np.ndarray | None],
    outputs: int = 1,
    reduction: int = 16,
    rtol: float | None = None,
    **how: Any,
) -> None:
    """Compares the outputs of one node; 64-bit integers come as 32 bits."""
    model = node(op, inputs, outputs, **how)
    want = run(model, inputs)
    got = [np.asarray(x) for x in converted(model, inputs)]
    assert [x.dtype.kind for x in got] == [x.dtype.kind for x in want]
    assert_close(
        [x.astype(w.dtype) for x, w in zip(got, want)], want, reduction=reduction, rtol=rtol
    )
