"""Shardy's operations on one device."""

import numpy as np
import pytest

from anyjax.errors import Unsupported
from tests.stablehlo.texts import called

X = np.arange(4, dtype=np.float32)


def text(count):
    shard = f"tensor<{4 // count}xf32>"
    return f"""module {{ sdy.mesh @mesh = <["x"={count}]>
      func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {{
        %1 = sdy.sharding_constraint %0 <@mesh, [{{"x"}}]> : tensor<4xf32>
        %2 = sdy.manual_computation(%1) in_shardings=[<@mesh, [{{"x"}}]>]
          out_shardings=[<@mesh, [{{"x"}}]>] manual_axes={{"x"}} (%3: {shard}) {{
          %4 = stablehlo.negate %3 : {shard}
          sdy.return %4 : {shard}
        }} : (tensor<4xf32>) -> tensor<4xf32>
        return %2 : tensor<4xf32> }} }}"""


def test_one_device():
    np.testing.assert_array_equal(called(text(1), X), -X)


def test_several_devices():
    with pytest.raises(Unsupported, match="parts of several devices"):
        called(text(2), X)
