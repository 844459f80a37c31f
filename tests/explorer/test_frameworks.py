"""``anyjax.explore`` of models from TensorFlow and ONNX."""

from __future__ import annotations

import numpy as np
import pytest

import anyjax

X = np.ones((2, 8), np.float32)


def test_keras():
    keras = pytest.importorskip("keras")
    layers = keras.layers
    net = keras.Sequential(
        [layers.Input((8,)), layers.Dense(4, "relu", name="first"), layers.Dense(3, name="second")],
        name="net",
    )
    report = anyjax.explore(anyjax.from_tensorflow(net, X), X)
    by_name = {x.path.rpartition("/")[2].partition("_")[0]: x for x in report.modules}
    assert report.separator == "/" and "names no modules" in report.notes[0]
    assert [len(by_name[x].arrays) for x in ("first", "second")] == [2, 2]
    assert (by_name["first"].params, by_name["second"].params) == (36, 15)
    assert by_name["first"].work.products == 2 * 2 * 8 * 4
    assert report.total.work.products == 2 * 2 * (8 * 4 + 4 * 3) and report.total.params == 51


def test_onnx():
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    array = lambda name, *shape: numpy_helper.from_array(np.ones(shape, np.float32), name)
    value = lambda name, *shape: helper.make_tensor_value_info(name, 1, shape)
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["h"], name="/net/fc/MatMul"),
        helper.make_node("Relu", ["h"], ["y"], name="/net/act/Relu"),
    ]
    inside = [value("x", "n", 8)], [value("y", "n", 4)], [array("onnx::MatMul_7", 8, 4)]
    graph = helper.make_graph(nodes, "net", *inside)
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert onnx.checker.check_model(file) is None
    report = anyjax.explore(anyjax.from_onnx(file), x=X)
    modules = {x.path: x for x in report.modules}
    assert [*modules] == ["", "net", "net/fc", "net/act"]
    assert modules["net/fc"].arrays == ["onnx::MatMul_7"] and modules["net/fc"].params == 32
    assert modules["net/fc"].work.products == 2 * 2 * 8 * 4
    assert modules["net/act"].primitives["max"].elementwise == 8
