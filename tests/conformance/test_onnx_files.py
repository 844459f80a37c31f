"""The ONNX files that packages on PyPI carry, beside onnxruntime."""

import warnings

import jax
import numpy as np
import onnx
import pytest

import anyjax
from anyjax.dtypes import is_float
from examples.pretrained import wheel
from tests.onnx.agree import runtime
from tests.tolerance import assert_close

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.processes,  # pip, which downloads
    # Sizes and rates that decide what is computed are static in a call by themselves.
    pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument"),
]
rng = np.random.default_rng(0)
normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
rate, state = np.asarray(16000), normal(2, 1, 128)
image = normal(1, 3, 320, 320) / 4
SILERO = "silero-vad==6.2.3", "silero_vad/data/"
OCR = "rapidocr-onnxruntime", "rapidocr_onnxruntime/models/"
DDDD = "ddddocr", "ddddocr/"
ASR = "onnx-asr", "onnx_asr/preprocessors/data/"
sound = (normal(2, 16000) / 8, np.int64([16000, 12000]))

# Package, folder and file, inputs.
FILES = {
    "silero_vad": (*SILERO, "silero_vad.onnx", (normal(1, 512), state, rate)),
    "silero_vad_op15": (*SILERO, "silero_vad_16k_op15.onnx", (normal(1, 512), state, rate)),
    "silero_vad_ifless": (*SILERO, "silero_vad_op18_ifless.onnx", (normal(1, 576), rate, state)),
    "silero_vad_half": (*SILERO, "silero_vad_half.onnx", (normal(1, 512), state)),
    "ocr_detector": (*OCR, "ch_PP-OCRv4_det_infer.onnx", (image,)),
    "ocr_recogniser": (*OCR, "ch_PP-OCRv4_rec_infer.onnx", (normal(1, 3, 48, 160) / 4,)),
    "ocr_classifier": (*OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", (normal(1, 3, 48, 192) / 4,)),
    "magika": ("magika", "magika/models/standard_v3_3/", "model.onnx", None),
    "nudenet": ("nudenet", "nudenet/", "320n.onnx", (np.abs(image),)),
    "ddddocr": (*DDDD, "common.onnx", (normal(1, 1, 64, 160) / 4,)),
    "ddddocr_detector": (*DDDD, "common_det.onnx", None),
    "whisper_features": (*ASR, "whisper80.onnx", sound),
    "nemo_features": (*ASR, "nemo80.onnx", sound),
}


def read(name):
    package, folder, file, inputs = FILES[name]
    try:
        proto = onnx.load_model(wheel(package) / folder / file)
    except ConnectionError as error:
        pytest.skip(str(error))
    return proto, inputs or drawn(proto)


def drawn(proto):
    """Draws inputs for the shapes of a graph."""
    shapes = [[d.dim_value or 1 for d in x.type.tensor_type.shape.dim] for x in proto.graph.input]
    types = [
        onnx.helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type)
        for x in proto.graph.input
    ]
    pairs = zip(shapes, types)
    return tuple(normal(*s) if is_float(t) else rng.integers(0, 200, s).astype(t) for s, t in pairs)


@pytest.mark.parametrize("name", FILES)
def test_file(name):
    proto, inputs = read(name)
    model = anyjax.from_onnx(proto)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = runtime(proto, *inputs)
    out = model(*inputs)
    got = list(out.values()) if len(want) > 1 else [out]
    for x, y in zip(got, want, strict=True):
        scale = 1 if name == "ocr_detector" else None  # probabilities, of noise all close to 0
        assert_close(np.asarray(x), y.astype(x.dtype), reduction=10**5, scale=scale)
    floats = [i for i, x in enumerate(inputs) if x.ndim and is_float(x.dtype)]

    def loss(params, *arrays):
        values = [arrays[floats.index(i)] if i in floats else x for i, x in enumerate(inputs)]
        return sum(
            (x**2).mean()
            for x in jax.tree.leaves(model.apply(params, *values))
            if is_float(x.dtype)
        )

    arrays = [inputs[i] for i in floats]
    slopes, *rest = jax.grad(loss, argnums=range(1 + len(arrays)))(model.params, *arrays)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((slopes, rest)))
    assert any(np.abs(x).max() > 0 for x in jax.tree.leaves((slopes, rest)))
