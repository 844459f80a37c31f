"""Models that torch and Keras export to ONNX, beside the frameworks themselves."""

import contextlib
import logging
import warnings

import jax
import numpy as np
import onnx
import pytest

import anyjax
from tests.tolerance import assert_close

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript", reason="torch.onnx.export writes with it")

from tests.hf.test_types import TYPES, build, scores  # noqa: E402

pytestmark = pytest.mark.sample(every=12)


EAGER = {"t5"}  # whose attention by one kernel torch does not export


class Scores(torch.nn.Module):
    """The scores of a model, as a function of its inputs by position."""

    def __init__(self, module, names):
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *inputs):
        return scores(self.module(**dict(zip(self.names, inputs))))


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's, of its own functions
        yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TYPES)
def test_transformers(name, tmp_path):
    module, inputs = build(name)
    module.config.use_cache = False
    if name in EAGER:
        module.set_attn_implementation("eager")
    if name == "mixtral":
        module.set_experts_implementation("batched_mm")  # torch exports no grouped product
    wrapped = Scores(module, [*inputs])
    tensors = tuple(map(torch.from_numpy, inputs.values()))
    with quiet():
        torch.onnx.export(wrapped, tensors, tmp_path / "m.onnx", dynamo=True, verbose=False)
    model = anyjax.from_onnx(tmp_path / "m.onnx")
    arrays = [model.source.as_array(x) for x in inputs.values()]
    want = wrapped(*tensors)
    assert_close(model(*arrays), want.detach().numpy(), reduction=512)
    gradient = jax.grad(lambda p: (model.apply(p, *arrays) ** 2).mean())(model.params)
    assert all(np.isfinite(x).all() for x in gradient.values())
    assert any(np.abs(x).max() > 0 for x in gradient.values())


def keras_models():
    keras = pytest.importorskip("keras")
    layers = keras.layers
    image, text, signal = (
        keras.Input((16, 16, 3)),
        keras.Input((6,), dtype="int32"),
        keras.Input((12, 4)),
    )
    c = layers.Conv2D(8, 3, padding="same", strides=2)(image)
    c = layers.ReLU()(layers.BatchNormalization()(c))
    c = layers.DepthwiseConv2D(3, padding="same")(c)
    c = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(c))
    e = layers.Embedding(20, 8)(text)
    e = layers.LayerNormalization()(e + layers.MultiHeadAttention(2, 4)(e, e))
    r = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(signal)
    g = layers.GRU(6)(layers.Conv1D(4, 3, padding="causal")(r))
    u = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(layers.UpSampling2D()(image))
    return {
        "convolutions": keras.Model(image, layers.Dense(4, "softmax")(c)),
        "attention": keras.Model(text, layers.Dense(3)(e)),
        "recurrent": keras.Model(signal, layers.Dense(2, "tanh")(g)),
        "upsampling": keras.Model(image, u),
    }


@pytest.mark.parametrize("name", ["convolutions", "attention", "recurrent", "upsampling"])
def test_keras(name, tmp_path):
    tf2onnx = pytest.importorskip("tf2onnx")
    import tensorflow as tf

    model = keras_models()[name]
    ((_, *shape),) = [x.shape for x in model.inputs]
    dtype = model.inputs[0].dtype
    spec = tf.TensorSpec([2, *shape], dtype, name="x")
    with quiet():
        function = tf.function(lambda x: model(x, training=False))
        proto, _ = tf2onnx.convert.from_function(function, [spec], opset=18)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, *shape)) if dtype == "float32" else rng.integers(0, 20, (2, *shape))
    x = x.astype(dtype)
    onnx.save(proto, tmp_path / "m.onnx")
    converted = anyjax.from_onnx(tmp_path / "m.onnx")
    assert_close(converted(x), model(x).numpy(), reduction=512)
    gradient = jax.grad(lambda p: (converted.apply(p, x) ** 2).mean())(converted.params)
    assert any(np.abs(g).max() > 0 for g in gradient.values())
