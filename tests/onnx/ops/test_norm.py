"""Normalization, its older versions, and its gradients where all is equal."""

import jax
import numpy as np
import pytest

import anyjax
from anyjax.errors import Unsupported
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X = normal(3, 4, 5, 6)
STATISTICS = {"s": normal(4), "b": normal(4), "mean": normal(4), "var": abs(normal(4))}


@pytest.mark.parametrize("version", [7, 9, 14, 15])
def test_batch_norm(version):
    inputs = {"X": X, **STATISTICS}
    assert_agrees("BatchNormalization", inputs, opsets={"": version}, epsilon=0.01)


def test_batch_norm_in_training():
    how = {"training_mode": 1, "momentum": 0.7}
    assert_agrees("BatchNormalization", {"X": X, **STATISTICS}, 3, 90, **how)


def test_old_batch_norm_in_training_is_refused():
    inputs = {"X": X, **STATISTICS}
    model = anyjax.from_onnx(node("BatchNormalization", inputs, 2, opsets={"": 9}))
    with pytest.raises(Unsupported, match="before opset 14 in training"):
        model(**inputs)


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_layers(axis):
    weights = {"s": normal(*X.shape[axis:]), "b": normal(*X.shape[axis:])}
    assert_agrees("LayerNormalization", {"X": X, **weights}, 3, 120, axis=axis)
    inputs = {"X": X, "s": weights["s"]}
    assert_agrees("RMSNormalization", inputs, 1, 120, axis=axis, opsets={"": 23})


@pytest.mark.parametrize("version,size", [(18, 2), (21, 4)])
def test_groups(version, size):
    inputs = {"X": X, "s": normal(size), "b": normal(size)}
    assert_agrees("GroupNormalization", inputs, 1, 60, num_groups=2, opsets={"": version})


def test_instances():
    inputs = {"input": X, "s": STATISTICS["s"], "b": STATISTICS["b"]}
    assert_agrees("InstanceNormalization", inputs, reduction=30)


def test_neighbours_and_norms():
    assert_agrees("LRN", {"X": X}, size=3, alpha=0.3, beta=0.6, bias=1.5)
    assert_agrees("MeanVarianceNormalization", {"X": X}, reduction=90, axes=[0, 2])
    for p in (1, 2):
        assert_agrees("LpNormalization", {"X": X}, p=p, axis=1)


@pytest.mark.parametrize("op", ["LpNormalization", "MeanVarianceNormalization", "LRN"])
def test_gradients_are_finite_where_all_is_zero(op):
    model = anyjax.from_onnx(node(op, {"X": X}, **({"size": 3} if op == "LRN" else {})))
    slope = jax.grad(lambda x: model.apply(model.params, x).sum())(np.zeros_like(X))
    assert np.isfinite(slope).all()
