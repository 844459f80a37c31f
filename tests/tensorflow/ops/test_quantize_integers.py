"""Integers of a range: modes, rounding, one range for each channel."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tensorflow.agree import agree

X = np.random.default_rng(0).uniform(-3, 3, (4, 5)).astype(np.float32)
KINDS = [tf.quint8, tf.qint8, tf.quint16, tf.qint16]
raw = tf.raw_ops


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda x: x.name)
@pytest.mark.parametrize("ends", [(-2.0, 2.5), (0.5, 2.0), (0.0, 0.0)])
def test_there(mode, kind, ends):
    if kind in (tf.quint16, tf.qint16) and mode == "MIN_FIRST":
        pytest.skip("TensorFlow rounds these in another order")
    store = {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.quint16: tf.uint16, tf.qint16: tf.int16}

    def quantized(x, low, high):
        out = raw.QuantizeV2(input=x, min_range=low, max_range=high, T=kind, mode=mode)
        found = tf.bitcast(out.output, store[kind])
        if kind.size == 2:  # the last bit of a float32 counts
            found = tf.cast(found, tf.float32)
        return found, out.output_min, out.output_max

    agree(quantized, X, *map(np.float32, ends), grad=False, depth=64 if kind.size == 1 else 65536)


@pytest.mark.parametrize("how", [
    {"round_mode": "HALF_TO_EVEN", "mode": "SCALED"},
    {"narrow_range": True, "mode": "SCALED"},
    {"narrow_range": True, "mode": "SCALED", "axis": 1},
    {"axis": 1},
])  # fmt: skip
def test_options(how):
    ends = [np.float32(-2), np.float32(2.5)]
    if "axis" in how:
        ends = [np.linspace(-3, -1, 5, dtype=np.float32), np.linspace(1, 2, 5, dtype=np.float32)]

    def there_and_back(x, low, high):
        out = raw.QuantizeV2(input=x, min_range=low, max_range=high, T=tf.qint8, **how)
        rest = {k: v for k, v in how.items() if k != "round_mode"}
        back = raw.Dequantize(
            input=out.output, min_range=out.output_min, max_range=out.output_max, **rest
        )
        return tf.bitcast(out.output, tf.int8), back

    agree(there_and_back, X, *ends, grad=False)


@pytest.mark.parametrize("kind", [tf.quint8, tf.qint8], ids=lambda x: x.name)
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("ends", [(-2.5, 2.0), (-1.0, 0.5)])
def test_halves_to_even(kind, narrow, ends):
    def quantized(x, low, high):
        out = raw.QuantizeV2(
            input=x, min_range=low, max_range=high, T=kind, mode="SCALED",
            round_mode="HALF_TO_EVEN", narrow_range=narrow,
        )  # fmt: skip
        return tf.bitcast(out.output, tf.uint8), out.output_min, out.output_max

    agree(quantized, np.linspace(-3, 3, 13, dtype=np.float32), *map(np.float32, ends), grad=False)


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda x: x.name)
def test_back(mode, kind):
    run = lambda x: raw.Dequantize(
        input=raw.QuantizeV2(
            input=x, min_range=-2.0, max_range=2.5, T=kind, mode="MIN_COMBINED"
        ).output,
        min_range=-2.0,
        max_range=2.5,
        mode=mode,
    )
    agree(run, X, grad=False, depth=64 if kind.size == 1 else 65536)
