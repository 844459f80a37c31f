"""Convolutions in groups as products are those of lax."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from anyjax.numerics.convolution import conv_general_dilated
from anyjax.numerics.grouped_convolution import by_products, by_taps
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=30)

LAYOUTS = {1: ("NCH", "OIH", "NCH"), 2: ("NHWC", "HWIO", "NHWC"), 3: None}
CASES = [
    *itertools.product(
        LAYOUTS,
        [(1, 1), (2, 1), (4, 1), (8, 1), (1, 2)],
        [1, 2],
        [1, 2],
        [1, 2],
        ["float32", "bfloat16"],
    )
]


def arrays(dims, groups, batch_groups, layout, dtype):
    sizes = {"N": 4, "C": 8, "O": 16, "I": 8 // groups, "H": 7, "W": 6, "D": 5}
    lhs, rhs, _ = layout or ("NCDHW", "OIDHW", None)
    kernel = dict.fromkeys("DHW", 3) | {x: sizes[x] for x in "OI"}
    rng = np.random.default_rng(0)
    shapes = [sizes[x] for x in lhs], [kernel[x] for x in rhs]
    return (jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes)


@pytest.mark.parametrize("dims, groups, stride, hole, apart, dtype", CASES)
def test_as_lax(dims, groups, stride, hole, apart, dtype):
    layout, padding = LAYOUTS[dims], [(1, 2), (0, 1), (-1, 2)][:dims]
    x, w = arrays(dims, *groups, layout, dtype)
    strides, holes, aparts = [stride] * dims, [hole] * dims, [apart] * dims
    names = lax.conv_dimension_numbers(x.shape, w.shape, layout)

    def theirs(x, w):
        return lax.conv_general_dilated(x, w, strides, padding, holes, aparts, layout, *groups)

    def ours(x, w):
        options = names, *groups, "highest", x.dtype
        return by_products(x, w, strides, padding, holes, aparts, *options)

    assert_close(ours(x, w), theirs(x, w), reduction=8 * 27)
    loss = lambda f: jax.grad(lambda x, w: jnp.sin(f(x, w).astype("float32")).sum(), (0, 1))
    if dtype == "float32":
        for a, b in zip(loss(ours)(x, w), loss(theirs)(x, w)):
            assert_close(a, b, reduction=8 * 27 * 4, scale=float(abs(b).max()))


@pytest.mark.parametrize("taps", [64, 70, 128])
@pytest.mark.parametrize("layout", [("NCH", "OIH", "NCH"), ("NHC", "HIO", "NHC")])
@pytest.mark.parametrize("padding", [(0, 0), (64, 63), (3, -2)])
def test_many_taps_in_turn(taps, layout, padding):
    rng = np.random.default_rng(taps)
    sizes = {"N": 2, "C": 12, "O": 8, "I": 3, "H": 150}
    x = rng.standard_normal([sizes[n] for n in layout[0]]).astype("f4")
    w = rng.standard_normal([{**sizes, "H": taps}[n] for n in layout[1]]).astype("f4")
    names = lax.conv_dimension_numbers(x.shape, w.shape, layout)
    theirs = lambda x, w: lax.conv_general_dilated(x, w, (1,), [padding], None, None, layout, 4)
    ours = lambda x, w: by_taps(x, w, [padding], names, 4, "highest", x.dtype)
    assert_close(ours(x, w), theirs(x, w), reduction=3 * taps)
    slopes = lambda f: jax.jit(jax.grad(lambda x, w: jnp.sin(f(x, w)).sum(), (0, 1)))(x, w)
    for a, b in zip(slopes(ours), slopes(theirs)):
        assert_close(a, b, reduction=3 * taps * 150, scale=float(abs(b).max()))


def test_a_positional_convolution_of_speech_models_on_each_platform():
    """The gradient by weights has a window of all places, which takes libtpu minutes."""
    x, w = jnp.zeros((1, 32, 200)), jnp.zeros((32, 8, 128))
    loss = lambda x, w: conv_general_dilated(
        x, w, (1,), [(64, 64)], feature_group_count=4, precision="highest"
    ).sum()
    traced = jax.jit(jax.grad(loss, (0, 1))).trace(x, w)
    assert "stablehlo.convolution" not in traced.lower(lowering_platforms=("tpu",)).as_text()
    assert "stablehlo.convolution" in traced.lower(lowering_platforms=("cuda",)).as_text()
