"""Types that JAX has no arrays of."""

import pytest

import tojax
from tests.stablehlo.texts import function
from tojax.errors import Unsupported


def test_quantized():
    kind = "2x!quant.uniform<i8:f32, 0.5>"
    body = f"%out = stablehlo.uniform_quantize %0 : (tensor<2xf32>) -> tensor<{kind}>"
    with pytest.raises(Unsupported, match="dequantize before"):
        tojax.from_stablehlo(function("2xf32", kind, body))
