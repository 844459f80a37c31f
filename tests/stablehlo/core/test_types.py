"""Types that JAX has no arrays of."""

import pytest

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.types import element


def test_quantized():
    with pytest.raises(Unsupported, match="dequantize before"):
        element("!quant.uniform<i8:f32, 5.000000e-01>")
