"""GGUF files: a small Llama written as llama.cpp does, quantized and not, beside the module."""

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import BadCheckpoint
from tests.models import tiny
from tests.tolerance import assert_close

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
from benchmarks import gguf_file  # noqa: E402

pytestmark = pytest.mark.sample(every=2)

Q8 = gguf.GGMLQuantizationType.Q8_0


def write(module, file, quantized):
    """Writes the file and puts what rounding left into the module."""
    for parameter in module.parameters() if quantized else ():
        values = parameter.detach().numpy()
        if values.ndim == 2 and values.shape[1] % 32 == 0:
            rounded = gguf.dequantize(gguf.quantize(values, Q8), Q8)
            assert not np.array_equal(rounded, values)
            parameter.data = torch.from_numpy(rounded.copy())
    gguf_file.write(module, file, "Q8_0" if quantized else None)


@pytest.mark.parametrize("quantized", [False, True])
def test_a_file_of_llama_cpp(quantized, tmp_path):
    module, inputs = tiny.build("llama")
    write(module, tmp_path / "tiny.gguf", quantized)
    model = anyjax.from_pretrained(tmp_path / "tiny.gguf")
    assert type(model.source.module) is type(module)
    params = model.params
    if quantized:  # matrices stay as they are
        assert all(x.ndim == 1 or x.shape[1] % 32 for x in params.values())
        assert {form.scheme for form in model.source.packed} == {"int8"}
        params, _ = model.source.opened(params, model.state)
        floats = anyjax.from_pretrained(tmp_path / "tiny.gguf", dequantize=True)
        assert_close(floats.params, params, rtol=0)
    assert_close(params, {k: v.detach() for k, v in module.named_parameters()}, rtol=1e-6)
    assert_close([model(**inputs).logits], [module(**inputs).logits.detach()], rtol=1e-4)

    half = anyjax.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype="bfloat16")
    assert {str(v.dtype) for v in half.params.values()} == {"bfloat16"}
    model.save_pretrained(tmp_path / "hf")
    back = type(module).from_pretrained(tmp_path / "hf")
    assert_close([back(**inputs).logits.detach()], [module(**inputs).logits.detach()], rtol=1e-4)


def test_a_file_that_is_cut_off(tmp_path):
    file = tmp_path / "tiny.gguf"
    write(tiny.build("llama")[0], file, False)
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(BadCheckpoint, match="download the file again"):
        anyjax.from_pretrained(file)


def test_files_that_are_none(tmp_path):
    (tmp_path / "y.gguf").touch()
    (tmp_path / "z.gguf").mkdir()
    for name in ("x.gguf", "z.gguf"):
        with pytest.raises(BadCheckpoint, match=f"there is no {name}") as caught:
            anyjax.from_pretrained(tmp_path / name)
        assert str(caught.value).splitlines()[2:3] == ["  why:   GGUF files there are: y.gguf"]
    (tmp_path / "x.gguf").write_bytes(b"GGML")
    with pytest.raises(BadCheckpoint, match="no GGUF file"):
        anyjax.from_pretrained(tmp_path, gguf_file="x.gguf")
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + b"\0" * 10)
    with pytest.raises(BadCheckpoint, match="cannot read the config"):
        anyjax.from_pretrained(tmp_path, gguf_file="x.gguf")
