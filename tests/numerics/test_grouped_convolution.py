"""Convolutions in groups as products are those of lax."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from anyjax.numerics.grouped_convolution import by_products
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
