"""Resizing in all modes, and sampling on grids."""

import itertools

import jax
import numpy as np
import pytest
from jax.test_util import check_grads

import anyjax
from anyjax.errors import Unsupported
from anyjax.onnx.ops.resize import resize_10
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=20)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 2, 7, 6)).astype(np.float32)
NONE = np.zeros(0, np.float32)
MODES = [("nearest", name) for name in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")]
MODES += [("linear", None), ("cubic", None)]
PLACES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
FACTORS = [(2, 2), (0.5, 0.5), (1.5, 0.7), (0.3, 3.3), (1 / 7, 1)]


def factors(*scales):
    return np.array([1, 1, *scales], np.float32)


def resize(scales=None, sizes=None, roi=NONE, version=19, x=X, **how):
    inputs = {"X": x, "roi": roi, "scales": scales}
    inputs |= {} if sizes is None else {"sizes": np.array(sizes)}
    constants = tuple(name for name in ("roi", "scales", "sizes") if inputs.get(name) is not None)
    assert_agrees("Resize", inputs, 1, 64, constants=constants, opsets={"": version}, **how)


@pytest.mark.parametrize("mode,place,scales", [*itertools.product(MODES, PLACES, FACTORS)])
def test_scales(mode, place, scales):
    how = {} if mode[1] is None else {"nearest_mode": mode[1]}
    resize(factors(*scales), mode=mode[0], coordinate_transformation_mode=place, **how)


@pytest.mark.parametrize("place,scales", [*itertools.product(PLACES[:1], FACTORS)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias(mode, place, scales):
    for outside in (0, 1) if mode == "cubic" else (0,):
        how = {"antialias": 1, "mode": mode, "exclude_outside": outside}
        resize(factors(*scales), coordinate_transformation_mode=place, **how)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes(mode):
    resize(None, [1, 2, 4, 9], mode=mode)
    for policy in ("not_larger", "not_smaller"):
        resize(None, [9, 4], axes=[2, 3], keep_aspect_ratio_policy=policy, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crops(mode):
    roi = np.array([0, 0, 0.1, -0.2, 1, 1, 0.8, 1.3], np.float32)
    how = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 0.25}
    resize(None, [1, 2, 4, 9], roi, mode=mode, **how)


@pytest.mark.parametrize("scales", [(2, 2), (0.5, 0.5), (1.5, 0.7), (0.4, 3.3)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_versions(mode, scales):
    inputs = {"X": X, "scales": factors(*scales)}
    assert_agrees("Resize", inputs, constants=("scales",), mode=mode, opsets={"": 10})
    if min(scales) > 1:
        assert_agrees("Upsample", inputs, constants=("scales",), mode=mode, opsets={"": 9})
        how = {"scales": [1.0, 1.0, *scales], "mode": mode, "opsets": {"": 7}}
        assert_agrees("Upsample", {"X": X}, **how)


def test_half_pixels_of_tensorflow():
    place = "tf_half_pixel_for_nn"
    resize(factors(1.5, 0.6), version=11, coordinate_transformation_mode=place, mode="nearest")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("how", [{}, {"antialias": 1}, {"antialias": 1, "mode": "cubic"}])
def test_integers(dtype, how):
    """Without aliases, onnxruntime takes negative numbers of 8 bits for positive ones."""
    x = RNG.integers(0 if dtype == "uint8" or how else -100, 100, (1, 2, 7, 6)).astype(dtype)
    for scales in ((2, 2), (0.5, 0.5), *([] if how else [(1.5, 0.7)])):  # of exact weights
        inputs = {"X": x, "roi": NONE, "scales": factors(*scales)}
        if how.get("mode") != "cubic" or dtype != "int8":
            options = {"mode": "linear", "opsets": {"": 19}} | how
            assert_agrees("Resize", inputs, constants=("roi", "scales"), rtol=0, **options)


def test_the_gradient():
    inputs = {"X": X, "roi": NONE, "scales": factors(2, 0.7)}
    model = anyjax.from_onnx(node("Resize", inputs, constants=("roi", "scales"), mode="cubic"))
    apply = lambda x: model.apply(model.params, x)
    check_grads(apply, (X,), 1, atol=2e-2, rtol=2e-2, eps=1e-2)
    assert (jax.vmap(apply)(X[None])[0] == apply(X)).all()


def test_symbolic_lines_are_refused():
    like = jax.ShapeDtypeStruct(jax.export.symbolic_shape("1, 2, h, 6"), np.float32)
    double = lambda x: resize_10(x, factors(2, 2), "nearest")
    with pytest.raises(Unsupported, match="resizing of, or to, h lines"):
        jax.export.export(jax.jit(double))(like)
    wider = jax.jit(lambda x: resize_10(x, factors(1, 2), "nearest"))
    assert str(jax.export.export(wider)(like).out_avals[0].shape) == "(1, 2, h, 12)"


@pytest.mark.parametrize(
    "pad,align", [*itertools.product(["zeros", "border", "reflection"], [0, 1])]
)
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample(mode, pad, align):
    grid = (1.2 * RNG.standard_normal((1, 5, 4, 2))).astype(np.float32)
    how = {"padding_mode": pad, "align_corners": align}
    assert_agrees("GridSample", {"X": X, "grid": grid}, 1, 64, mode=mode, **how)
    if mode != "cubic":
        volume = {"X": X[:, :, None], "grid": RNG.random((1, 3, 2, 4, 3), np.float32)}
        assert_agrees("GridSample", volume, 1, 64, mode=mode, **how)
        old = {"linear": "bilinear"}.get(mode, mode)
        assert_agrees("GridSample", {"X": X, "grid": grid}, 1, 64, opsets={"": 16}, mode=old, **how)


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grid(align):
    theta = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    inputs = {"theta": theta, "size": np.array([2, 3, 4, 2, 5])}
    assert_agrees("AffineGrid", inputs, constants=("size",), align_corners=align)


def test_pixels_move():
    shape = {"X": X, "shape": np.array([4, 9])}
    assert_agrees("CenterCropPad", shape, constants=("shape",), axes=[2, -1])
    for mode in ("DCR", "CRD"):
        assert_agrees("DepthToSpace", {"X": X.reshape(1, 28, 3, 1)}, blocksize=2, mode=mode)
    assert_agrees("SpaceToDepth", {"X": X[:, :, :6]}, blocksize=2)
