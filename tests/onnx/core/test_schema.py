"""Rows and the schemas of all versions."""

import numpy as np
import pytest

import anyjax
from anyjax.errors import TableError, Unsupported
from anyjax.onnx.core.nodes import Node
from anyjax.onnx.core.running import HANDLERS
from anyjax.onnx.core.schema import Op, inputs, key_of, op_of, read, row_of, table, versions
from anyjax.onnx.engine import binding
from anyjax.table import REQUIRED
from tests.onnx.agree import agree, model, normal

NEWEST = 28


def every():
    """Every version of every operator that opsets 7 and newer have, and that a row serves."""
    for domain, name in sorted({op[:2] for op in table}):
        opsets = range(7, NEWEST + 1) if not domain else range(1, NEWEST + 1)
        yield from sorted(filter(None, {op_of(domain, name, opset) for opset in opsets}))


def test_every_version_of_an_operator_finds_its_arguments():
    for op in every():
        row = row_of(op)
        if row is None or str(op) in HANDLERS:
            continue
        params = [p for p in read(op).params if p.kind not in ("array", "arrays")]
        attributes = {p.name: 1 if p.default is REQUIRED else p.default for p in params}
        names = tuple(f"x{i}" for i in range(len(inputs(op))))
        slots = binding.plan(Node("n", op, names, ("y",), attributes, None), row)
        assert len(slots) == len(row.signature.params), op


def test_versions_and_keys():
    assert versions("", "Softmax") == (1, 11, 13) and versions("", "Nothing") == ()
    assert op_of("ai.onnx", "Add", 13) == Op("", "Add", 13) and op_of("", "Mish", 17) is None
    assert key_of("ai.onnx.ml::Scaler") == Op("ai.onnx.ml", "Scaler", 1)
    assert row_of(Op("", "Softmax", 1)) is row_of(Op("", "Softmax", 11))
    assert row_of(Op("", "Softmax", 11)) is not row_of(Op("", "Softmax", 13))


def test_a_row_that_does_not_fit():
    with pytest.raises(TableError, match=r"declare \(A, B\)"):
        anyjax.onnx.lowers("Add")(lambda x, y: x)


def test_attributes_of_older_versions_are_inputs_of_newer_ones():
    x = normal(1, 4, 1, 3)
    for opset in (7, 13):
        axes = "<axes: ints = [0, 2]>" if opset == 7 else ""
        given = "(x)" if opset == 7 else "(x, axes)"
        text = f"m (float[1, 4, 1, 3] x) => (float[4, 3] y) {{ y = Squeeze {axes} {given} }}"
        weights = {} if opset == 7 else {"axes": np.int64([0, 2])}
        agree(model(text, opset, weights=weights), x)
    text = "m (float[1, 4, 1, 3] x) => (float[1, 4, 1, 3] y) { y = Clip <max: float = 0.5> (x) }"
    agree(model(text, 7), x)
    text = "m (float[1, 4, 1, 3] x) => (float[1, 4, 1, 3] y) { y = Softmax <axis: int = 1> (x) }"
    for opset in (7, 11, 13):
        agree(model(text, opset), x)


def test_what_no_row_knows_is_refused():
    proto = model("m (float[2] x) => (float[2] y) { y = Relu <slope: float = 2.0> (x) }")
    with pytest.raises(Unsupported, match=r"Relu with slope=2.0[\s\S]*node 'y'"):
        anyjax.from_onnx(proto)
