"""A graph of ONNX in, and one out, without PyTorch."""

import importlib.util

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import anyjax

assert importlib.util.find_spec("torch") is None
x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
graph = helper.make_graph(
    [helper.make_node("Relu", ["x"], ["y"])],
    "relu",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
)
relu = anyjax.from_onnx(helper.make_model(graph))
np.testing.assert_array_equal(relu(x), np.maximum(x, 0))
anyjax.export.to_onnx(relu, "relu.onnx", x)
onnx.checker.check_model("relu.onnx")
session = onnxruntime.InferenceSession("relu.onnx")
np.testing.assert_array_equal(
    session.run(None, {session.get_inputs()[0].name: x})[0], np.maximum(x, 0)
)
print("ok: from_onnx, to_onnx, onnxruntime")
