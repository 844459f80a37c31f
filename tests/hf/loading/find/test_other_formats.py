"""Models that are no checkpoint: what they are is said, and what takes them."""

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.hf.loading.find.checkpoint import find_checkpoint

pytestmark = pytest.mark.sample(every=2)

CALLS = [anyjax.from_pretrained, anyjax.convert, lambda x: find_checkpoint(x, need_weights=False)]


def said(call, source, error):
    with pytest.raises(error) as raised:
        call(source)
    assert raised.value.where and raised.value.why
    return raised.value.what, raised.value.do


@pytest.mark.parametrize("call", CALLS)
def test_onnx(call, tmp_path):
    """As a file, also one that is not there, and as what a folder holds."""
    file = tmp_path / "model.onnx"
    if call is anyjax.convert:
        assert "cannot be read" in said(call, "missing.onnx", BadCheckpoint)[0]
    else:
        what, do = said(call, "missing.onnx", BadCheckpoint)
        assert what == "missing.onnx is an ONNX model, no checkpoint" and "from_onnx" in do
    file.write_bytes(b"\x08\x07")
    assert "ONNX model" in said(call, str(file), BadCheckpoint)[0]
    assert said(call, tmp_path, BadCheckpoint)[0] == "model.onnx is an ONNX model, no checkpoint"


@pytest.mark.parametrize("name", ["m.tflite", "m.pt2", "m.mlpackage"])
def test_others_that_are_not_read(name, tmp_path):
    (tmp_path / name).touch()
    for source in (tmp_path / name, tmp_path):
        assert "files are not read yet" in said(find_checkpoint, source, Unsupported)[0]


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "weights.pt"])
def test_weights_alone(name, tmp_path):
    (tmp_path / name).touch()
    what, do = said(find_checkpoint, tmp_path / name, BadCheckpoint)
    assert what == f"{name} is a file of weights alone" and "config.json" in do


def test_saved_models(tmp_path):
    anyjax.from_torch(torch.nn.ReLU()).save(tmp_path / "m", np.ones(2, np.float32))
    what, do = said(anyjax.from_pretrained, tmp_path / "m", BadCheckpoint)
    assert what == "m is a saved model, no checkpoint" and "anyjax.load(folder)" in do
    (tmp_path / "t").mkdir()
    (tmp_path / "t/saved_model.pb").touch()
    what, do = said(anyjax.from_pretrained, tmp_path / "t", BadCheckpoint)
    assert what.startswith("t is TensorFlow's SavedModel") and "from_tensorflow" in do
