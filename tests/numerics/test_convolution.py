"""Depthwise convolutions, and those of single places and patches, on CPUs, beside XLA's own."""

import jax
import numpy as np
import pytest
from jax import export, lax

from anyjax.numerics.convolution import conv_general_dilated
from tests.tolerance import assert_close

RNG = np.random.default_rng(0)
CASES = {
    "one dimension": ((2, 6, 20), (6, 1, 4), dict(padding=[(3, 0)])),
    "strided": ((2, 6, 9, 8), (6, 1, 3, 3), dict(padding="SAME", window_strides=(2, 3))),
    "dilated": ((1, 4, 9, 9), (4, 1, 3, 2), dict(padding="VALID", rhs_dilation=(2, 3))),
    "cropped": ((1, 4, 9, 9), (4, 1, 3, 3), dict(padding=[(-1, 2), (0, -2)])),
    "channels last": (
        (2, 7, 7, 5),
        (3, 3, 1, 5),
        dict(padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    ),
    "three dimensions": ((1, 3, 4, 5, 6), (3, 1, 2, 2, 2), dict(padding="SAME")),
    "smaller than the window": ((1, 4, 2), (4, 1, 3), dict(padding="VALID")),
}


def drawn(shape, dtype=np.float32):
    return jax.numpy.asarray(RNG.standard_normal(shape), dtype)


def assert_same(mine, theirs, x, w, reduction):
    """Values, those of a batch, and in float32 gradients."""
    assert_close(mine(x, w), theirs(x, w), reduction=reduction)
    many = jax.vmap(mine, (0, None)), jax.vmap(theirs, (0, None))
    assert_close(many[0](x[None], w), many[1](x[None], w), reduction=reduction)
    if x.dtype == np.float32:
        slope = drawn(theirs(x, w).shape)
        mine, theirs = (jax.vjp(f, x, w)[1](slope) for f in (mine, theirs))
        for a, b in zip(mine, theirs):
            assert_close(a, b, reduction=x.size)


@pytest.mark.parametrize("dtype", [np.float32, jax.numpy.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_as_lax(name, dtype):
    x, w, how = CASES[name]
    x, w = drawn(x, dtype), drawn(w, dtype)
    how = (
        dict(window_strides=(1,) * (x.ndim - 2), feature_group_count=max(w.shape[0], w.shape[-1]))
        | how
    )
    how["feature_group_count"] = x.shape[-1 if "last" in name else 1]
    mine, theirs = (
        lambda *a, f=f: f(*a, **how) for f in (conv_general_dilated, lax.conv_general_dilated)
    )
    assert "conv_general" in str(jax.make_jaxpr(mine)(x, w))  # what other platforms run
    assert " convolution(" not in jax.jit(mine).lower(x, w).compile().as_text()
    assert_same(mine, theirs, x, w, w.size)


@pytest.mark.parametrize(
    "w, how",
    [
        ((8, 1, 3), dict(feature_group_count=4)),  # two filters for each channel
        ((4, 2, 3), dict(feature_group_count=2)),
        ((4, 1, 3), dict(feature_group_count=4, lhs_dilation=(2,))),
        ((4, 1, 129), dict(feature_group_count=4)),
    ],
)
def test_others_are_left_to_lax(w, how):
    x, w = drawn((2, 4, 150)), drawn(w)
    run = lambda f: f(x, w, (1,), [(0, 0)], **how)
    assert "convolution" in jax.jit(lambda: run(conv_general_dilated)).lower().as_text()
    np.testing.assert_array_equal(run(conv_general_dilated), run(lax.conv_general_dilated))


def test_symbolic_sizes():
    w = drawn((3, 3, 1, 5))
    run = lambda x: conv_general_dilated(
        x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=5
    )
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, h, w, 5"), np.float32)
    program = export.export(jax.jit(run))(shape)
    x = drawn((2, 7, 8, 5))
    assert_close(program.call(x), run(x), reduction=9)


def test_the_platform_that_is_compiled_for_decides():
    run = jax.jit(lambda x, w: conv_general_dilated(x, w, (1,), "SAME", feature_group_count=4))
    text = export.export(run, platforms=["tpu"])(drawn((1, 4, 9)), drawn((4, 1, 3))).mlir_module()
    assert "stablehlo.convolution" in text


def test_a_depthwise_one_is_computed_once():
    x, w = drawn((1, 8, 16, 16)), drawn((8, 1, 7, 7))
    convolve = lambda x, w: conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=8)

    @jax.jit
    def normalized(x, w):
        y = convolve(x, w).transpose(0, 2, 3, 1)
        y = y - y.mean(-1, keepdims=True)
        return y / y.std(-1, keepdims=True)

    text = normalized.lower(x, w).compile().as_text()
    assert text.count(" slice(") < 2 * 49  # of inputs and weights, not again for each user


LAST = ("NHWC", "HWIO", "NHWC")
POINTWISE = {
    "few places": ((2, 6, 5, 4), (3, 6, 1, 1), {}),
    "many places": ((3, 6, 24, 23), (4, 6, 1, 1), dict(padding="SAME")),
    "one row": ((1, 6, 24, 23), (4, 6, 1, 1), {}),
    "strided": ((2, 6, 9, 8), (3, 6, 1, 1), dict(window_strides=(2, 3))),
    "one dimension": ((2, 6, 9), (3, 6, 1), {}),
    "three dimensions": ((2, 6, 3, 4, 5), (3, 6, 1, 1, 1), {}),
    "channels last": ((2, 5, 4, 6), (1, 1, 6, 3), dict(dimension_numbers=LAST)),
    "last, strided": (
        (2, 5, 4, 6),
        (1, 1, 6, 3),
        dict(dimension_numbers=LAST, window_strides=(2, 1)),
    ),
    "patches": ((2, 3, 9, 8), (5, 3, 2, 3), dict(window_strides=(2, 3))),
    "patches of one dimension": ((2, 3, 9), (5, 3, 4), dict(window_strides=(4,))),
    "patches, channels last": (
        (2, 9, 8, 3),
        (2, 3, 3, 5),
        dict(window_strides=(2, 3), padding=[(0, 0), (0, 0)], dimension_numbers=LAST),
    ),
    "patches of volumes": ((1, 2, 4, 9, 8), (5, 2, 2, 2, 3), dict(window_strides=(2, 2, 3))),
    "rows last": ((6, 5, 4, 2), (1, 1, 6, 3), dict(dimension_numbers=("CHWN", "HWIO", "CHWN"))),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_windows_that_do_not_overlap_are_a_product(name):
    x, w, how = POINTWISE[name]
    x, w = drawn(x), drawn(w)
    how = dict(window_strides=(1,) * (x.ndim - 2), padding="VALID") | how
    mine, theirs = (
        lambda *a, f=f: f(*a, **how) for f in (conv_general_dilated, lax.conv_general_dilated)
    )
    assert "conv_general" not in str(jax.make_jaxpr(mine)(x, w))
    assert_same(mine, theirs, x, w, 36)


@pytest.mark.parametrize(
    "dtype, how",
    [
        (np.float32, dict(padding=[(1, 1), (0, 0)])),
        (np.float32, dict(lhs_dilation=(2, 2), padding=[(0, 0), (0, 0)])),
        (np.float32, dict(dimension_numbers=("NCHW", "OIHW", "NHWC"))),
        (jax.numpy.bfloat16, {}),
    ],
)
def test_other_single_places_are_xlas(dtype, how):
    x, w = drawn((2, 6, 5, 4), dtype), drawn((3, 6, 1, 1), dtype)
    how = dict(window_strides=(1, 1), padding="VALID") | how
    mine, theirs = conv_general_dilated(x, w, **how), lax.conv_general_dilated(x, w, **how)
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.conformance
def test_single_places_of_any_size_are_exported():
    (batch, height) = export.symbolic_shape("batch, height")
    x = jax.ShapeDtypeStruct((batch, 6, height, 8), np.float32)
    w = drawn((3, 6, 1, 1))
    run = lambda x: conv_general_dilated(x, w, (1, 1), "VALID")
    program = export.export(jax.jit(run))(x)
    y = drawn((2, 6, 5, 8))
    assert_close(program.call(y), lax.conv_general_dilated(y, w, (1, 1), "VALID"), reduction=6)


def test_no_rows():
    x, weight = np.zeros((0, 3, 4, 4), np.float32), np.ones((5, 3, 1, 1), np.float32)
    assert conv_general_dilated(x, weight, (1, 1), [(0, 0)] * 2).shape == (0, 5, 4, 4)
