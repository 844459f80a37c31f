"""Pools with every way of padding, and regions."""

import itertools

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

import anyjax
from anyjax.errors import DataDependent
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=8)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 8, 11)).astype(np.float32)
WAYS = [
    {"kernel_shape": [k, k], "strides": [s, s], "ceil_mode": c, "pads": p, "dilations": [d, d]}
    for k, s, c, p, d in itertools.product(
        [2, 3], [1, 2, 3], [0, 1], [[0] * 4, [1, 0, 1, 1]], [1, 2]
    )
]
WAYS += [
    {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": name}
    for name in ("SAME_UPPER", "SAME_LOWER", "VALID")
]


@pytest.mark.parametrize("how", WAYS)
def test_max_pool(how):
    for order in (0, 1):
        assert_agrees("MaxPool", {"X": X}, 2, storage_order=order, **how)


@pytest.mark.parametrize("how", WAYS)
def test_average_and_norm(how):
    for count in (0, 1):
        assert_agrees("AveragePool", {"X": X}, count_include_pad=count, **how)
    for p in (1, 2, 3):
        assert_agrees("LpPool", {"X": X}, p=p, **how)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global(op):
    assert_agrees(op, {"X": X}, reduction=88)


@pytest.mark.parametrize("dilation", [1, 2])
def test_the_gradient_of_a_max_pool(dilation):
    model = anyjax.from_onnx(
        node("MaxPool", {"X": X}, kernel_shape=[3, 3], dilations=[dilation] * 2, strides=[2, 2])
    )
    apply = lambda x: model.apply(model.params, x)
    check_grads(apply, (X,), 1, ["rev"], atol=2e-2, rtol=2e-2, eps=1e-3)
    assert (jax.vmap(apply)(X[None])[0] == model(X)).all()


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_gradient_of_a_norm_is_finite_at_zero(p):
    model = anyjax.from_onnx(node("LpPool", {"X": X}, kernel_shape=[2, 2], p=p))
    slope = jax.grad(lambda x: model.apply(model.params, x).sum())(np.zeros_like(X))
    assert np.isfinite(slope).all()


def test_a_pool_is_undone():
    how = {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = X[..., :10]
    pooled, places = anyjax.from_onnx(node("MaxPool", {"X": x}, 2, **how))(x).values()
    inputs = {"X": np.asarray(pooled), "I": np.asarray(places, np.int64)}
    assert_agrees("MaxUnpool", inputs, **how)
    inputs["shape"] = np.array([2, 3, 9, 12])
    model = anyjax.from_onnx(node("MaxUnpool", inputs, constants=("shape",), **how))
    out = model(inputs["X"], inputs["I"])
    assert out.shape == (2, 3, 9, 12) and float(out.sum()) == pytest.approx(float(pooled.sum()))


ROIS = np.array([[1, 1, 6, 5], [0, 2, 9, 9], [3, 3, 3.5, 3.2], [-2, 0, 13, 4]], np.float32)
IMAGE = RNG.standard_normal((2, 3, 10, 9)).astype(np.float32)


@pytest.mark.parametrize(
    "mode,ratio,version", [*itertools.product(["avg", "max"], [0, 2], [10, 16])]
)
def test_roi_align(mode, ratio, version):
    inputs = {"X": IMAGE, "rois": ROIS, "batch": np.array([0, 1, 1, 0])}
    how = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.5}
    how |= {"mode": mode, "opsets": {"": version}, "constants": () if ratio else ("rois",)}
    assert_agrees("RoiAlign", inputs, 1, 64, **how)


def test_the_regions_decide_the_samples_without_a_ratio():
    inputs = {"X": IMAGE, "rois": ROIS, "batch": np.array([0, 1, 1, 0])}
    model = anyjax.from_onnx(node("RoiAlign", inputs))
    with pytest.raises(DataDependent, match="RoiAlign with sampling_ratio=0"):
        jax.jit(model.apply)(model.params, *inputs.values())


def test_max_roi_pool():
    rois = np.concatenate([[[0], [1], [1], [0]], abs(ROIS)], 1).astype(np.float32)
    how = {"pooled_shape": [3, 2], "spatial_scale": 0.7}
    assert_agrees("MaxRoiPool", {"X": IMAGE, "rois": rois}, **how)
