"""Fused normalizations of onnxruntime."""

import numpy as np
import pytest

from tests.onnx.agree import normal as random
from tests.onnx.with_onnxruntime import assert_agrees, converted, node
from tests.tolerance import assert_close

X = random(2, 5, 8)
MS = "com.microsoft::"


@pytest.mark.parametrize("skip", [(2, 5, 8), (1, 5, 8), (5, 8)])
def test_skip_layer_norm(skip):
    inputs = {"input": X, "skip": random(*skip), "gamma": random(8)}
    assert_agrees(MS + "SkipLayerNormalization", inputs)
    assert_agrees(MS + "SkipLayerNormalization", inputs | {"beta": random(8), "b": random(8)})


def test_skip_simplified_layer_norm():
    inputs = {"input": X, "skip": X[::-1].copy(), "gamma": random(8), "bias": random(8)}
    assert_agrees(MS + "SkipSimplifiedLayerNormalization", inputs)


def test_sum_of_skip_layer_norm():
    inputs = {"input": X, "skip": random(2, 5, 8), "gamma": random(8), "beta": random(8)}
    for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        out = converted(node(MS + op, inputs, 4), inputs)[3]
        want = X + inputs["skip"] + (inputs["beta"] if "Simplified" in op else 0)
        assert_close(np.asarray(out), want)


@pytest.mark.parametrize("op", ["SimplifiedLayerNormalization", "LayerNormalization"])
def test_layer_norm_in_the_domain_of_onnx(op):
    inputs = {"X": X, "Scale": random(8)}
    assert_agrees(op, inputs, opsets={"": 13})


@pytest.mark.parametrize("full", [True, False])
def test_embed_layer_norm(full):
    rng = np.random.default_rng(0)
    numbers = lambda n: rng.integers(0, n, (2, 5)).astype(np.int32)
    inputs = {
        "ids": numbers(9), "segments": numbers(2) if full else None, "words": random(9, 8),
        "positions": random(7, 8), "of_segments": random(2, 8) if full else None,
        "gamma": random(8), "beta": random(8), "mask": numbers(2) if full else None,
        "at": None if full else numbers(7),
    }  # fmt: skip
    assert_agrees(MS + "EmbedLayerNormalization", inputs, 3 if full else 2)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_group_norm(channels_last):
    x, skip, gamma, beta, bias = random(2, 4, 4, 8), random(2, 8), *random(3, 8)
    inputs = {"X": x, "gamma": gamma, "beta": beta, "skip": skip, "bias": bias}
    inputs["X"] = x if channels_last else np.moveaxis(x, -1, 1)
    total = x + skip[:, None, None] + bias
    grouped = total.reshape(2, 16, 4, 2)
    mean, variance = grouped.mean((1, 3), keepdims=True), grouped.var((1, 3), keepdims=True)
    y = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
    want = [y / (1 + np.exp(-y)), total]
    want = want if channels_last else [np.moveaxis(v, -1, 1) for v in want]
    how = dict(activation=1, groups=4, channels_last=channels_last)
    model = node(MS + "SkipGroupNorm", inputs, 2, **how)
    assert_close([np.asarray(v) for v in converted(model, inputs)], want, reduction=64)
    inputs = dict(list(inputs.items())[:3])
    inputs["X"] = want[1]
    out = converted(node(MS + "GroupNorm", inputs, **how), inputs)[0]
    assert_close(np.asarray(out), want[0], reduction=64)
