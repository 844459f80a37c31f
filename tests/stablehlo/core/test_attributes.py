"""Constants in every notation and dtype."""

import ml_dtypes
import numpy as np
import pytest

from anyjax.errors import BadCheckpoint
from tests.stablehlo.texts import called

pytestmark = pytest.mark.sample(every=8)


def constant(text, kind):
    return called(
        f"""module {{ func.func @main() -> tensor<{kind}> {{
      %c = stablehlo.constant {text} : tensor<{kind}>
      return %c : tensor<{kind}> }} }}"""
    )


CASES = [
    ("dense<(0.0,1.0)>", "complex<f32>", 1j),
    ("dense<(0.0,1.0)>", "3xcomplex<f32>", [1j, 1j, 1j]),
    ("dense<[(0.0,1.0),(2.0,-3.5)]>", "2xcomplex<f32>", [1j, 2 - 3.5j]),
    ("dense<(0xFF800000,1.0)>", "complex<f32>", complex(-np.inf, 1)),
    ('dense<"0x0000803F000000400000803F00000040">', "2xcomplex<f32>", [1 + 2j, 1 + 2j]),
    ("dense<0xFF800000>", "f32", -np.inf),
    ("dense<[0x7FC00000, 1.5]>", "2xf32", [np.nan, 1.5]),
    ('dense<"0x05000000FFFFFFFF">', "2xi32", [5, -1]),
    ("dense<[1.5, 0x7F80]>", "2xbf16", np.array([1.5, np.inf], ml_dtypes.bfloat16)),
    ("dense<[1.0, 2.0]>", "2xf16", np.array([1, 2], np.float16)),
    ("dense<[-3, 7]>", "2xi4", np.array([-3, 7], ml_dtypes.int4)),
    ("dense<3>", "4xui4", np.array([3] * 4, ml_dtypes.uint4)),
    ("dense<[0.5, -2.0]>", "2xf8E4M3FN", np.array([0.5, -2], ml_dtypes.float8_e4m3fn)),
    ("dense<[true, false]>", "2xi1", [True, False]),
    ("dense<>", "0xf32", []),
    ("dense<[[1, 2], [3, 4]]>", "2x2xui8", [[1, 2], [3, 4]]),
]


@pytest.mark.parametrize(("text", "kind", "want"), CASES)
def test_constants(text, kind, want):
    value = constant(text, kind)
    if isinstance(want, np.ndarray):
        assert value.dtype == want.dtype
    np.testing.assert_array_equal(np.asarray(value, complex), np.asarray(want, complex))


@pytest.mark.parametrize("text", ["dense_resource<__elided__>", "dense_resource<big>"])
def test_constants_that_are_left_out(text):
    with pytest.raises(BadCheckpoint, match="a constant has no values"):
        constant(text, "2xf32")


def test_bytes_that_are_no_text():
    """Some calls keep the bytes of a struct."""
    text = r"""module { func.func @main(%0: tensor<2xf32>) -> tensor<2xf32> {
      %1 = stablehlo.custom_call @Sharding(%0) {backend_config = "\FF\00\80"}
        : (tensor<2xf32>) -> tensor<2xf32>
      return %1 : tensor<2xf32> } }"""
    np.testing.assert_array_equal(called(text, np.ones(2, np.float32)), 1)
