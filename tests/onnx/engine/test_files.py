"""Files that are damaged, incomplete or of another version."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import convert_model_to_external_data

import anyjax
from anyjax.errors import BadCheckpoint, Unsupported
from tests.onnx.agree import model, normal

TEXT = "m (float[2, 300] x) => (float[2, 3] y) { y = MatMul(x, w) }"


@pytest.fixture
def saved(tmp_path):
    """A model with its weights in another file."""
    proto = model(TEXT, weights={"w": normal(300, 3)})
    convert_model_to_external_data(proto, location="w.bin", size_threshold=0)
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_external_data(saved):
    x = normal(2, 300)
    want = x @ np.fromfile(saved.with_name("w.bin"), np.float32).reshape(300, 3)
    np.testing.assert_allclose(anyjax.from_onnx(saved)(x), want, rtol=1e-4, atol=1e-4)


def test_missing_external_data(saved):
    saved.with_name("w.bin").unlink()
    with pytest.raises(BadCheckpoint, match=r"external data of[\s\S]*put all files"):
        anyjax.from_onnx(saved)


def test_truncated_external_data(saved):
    file = saved.with_name("w.bin")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(BadCheckpoint, match=r"m\.onnx|damaged"):
        anyjax.from_onnx(saved)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "a/../../w.bin"])
def test_external_data_outside_of_the_folder(saved, location):
    proto = onnx.load(saved, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = location
    saved.with_name("w.bin").rename(saved.parent.parent / "w.bin")
    saved.write_bytes(proto.SerializeToString())
    with pytest.raises(BadCheckpoint, match="external data"):
        anyjax.from_onnx(saved)


def test_bytes_have_no_folder_for_external_data(saved):
    with pytest.raises(BadCheckpoint, match=r"'w' are in the file 'w.bin'"):
        anyjax.from_onnx(saved.read_bytes())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated(tmp_path, share):
    data = model(TEXT, weights={"w": normal(300, 3)}).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data[: int(share * len(data))])
    with pytest.raises(BadCheckpoint, match=r"is no ONNX model"):
        anyjax.from_onnx(tmp_path / "m.onnx")


def test_another_file_and_none(tmp_path):
    (tmp_path / "m.onnx").write_text("<html>not found</html>")
    with pytest.raises(BadCheckpoint, match="is no ONNX model"):
        anyjax.from_onnx(tmp_path / "m.onnx")
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        anyjax.from_onnx(tmp_path / "missing.onnx")


def test_a_tensor_of_the_wrong_size():
    proto = model(TEXT, weights={"w": normal(300, 3)})
    proto.graph.initializer[0].dims[0] = 301
    with pytest.raises(BadCheckpoint, match="tensor 'w' is damaged"):
        anyjax.from_onnx(proto)


def test_opsets_of_the_future_and_of_the_past():
    proto = model(TEXT, weights={"w": normal(300, 3)})
    proto.opset_import[0].version = 999
    with pytest.raises(Unsupported, match=r"opset 999[\s\S]*pip install --upgrade onnx"):
        anyjax.from_onnx(proto)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "abc"]
    node = helper.make_node("Add", ["a", "b"], ["c"])
    graph = helper.make_graph([node], "g", infos[:2], infos[2:])
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)
    x = normal(2, 3)
    np.testing.assert_array_equal(anyjax.from_onnx(old)(x, x), x + x)


def test_a_domain_without_opset():
    proto = model("m (float[2] x) => (float[2] y) { y = other.Thing(x) }", other=1)
    del proto.opset_import[1]
    with pytest.raises(BadCheckpoint, match="no opset of the domain 'other'"):
        anyjax.from_onnx(proto)
