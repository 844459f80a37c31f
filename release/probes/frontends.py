"""A model of each frontend that is installed, in one environment, beside the framework's own."""

import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np

import anyjax

x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
close = {"rtol": 1e-4, "atol": 1e-5}


def torch_module():
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    model = anyjax.from_torch(module)
    with torch.no_grad():
        np.testing.assert_allclose(model(x), module(torch.from_numpy(x)), **close)
    assert model.init(jax.random.key(0))["0.weight"].shape == (3, 4)


def checkpoint():
    llama = anyjax.from_pretrained(Path(sys.argv[1], "tiny-llama"))
    assert anyjax.verify(llama, np.array([[1, 5, 7]])).ok


def keras_model():
    import keras

    dense = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "relu")])
    np.testing.assert_allclose(anyjax.from_tensorflow(dense)(x), dense(x), **close)


def onnx_graph():
    import onnx

    places = [
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4])] for name in "xy"
    ]
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    relu = anyjax.from_onnx(onnx.helper.make_model(onnx.helper.make_graph([node], "relu", *places)))
    np.testing.assert_array_equal(relu(x), np.maximum(x, 0))


def program():
    exported = jax.export.export(jax.jit(jax.numpy.sin))(x)
    np.testing.assert_allclose(anyjax.from_stablehlo(exported.serialize())(x), np.sin(x), **close)


def saved():
    assert anyjax.load(Path(sys.argv[1], "saved"))(x).shape == (2, 2)


RUNS = {
    "torch": torch_module,
    "transformers": checkpoint,
    "tensorflow": keras_model,
    "onnx": onnx_graph,
    "jax": program,
    "safetensors": saved,
}
installed = [package for package in RUNS if find_spec(package)]
for package in installed:
    RUNS[package]()
shown = ", ".join(f"{package} {version(package)}" for package in installed)
print(f"ok: README's example, doctor, models of {shown}")
