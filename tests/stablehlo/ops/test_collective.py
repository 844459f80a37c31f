"""Among one device: nothing happens. Among several: refused."""

import numpy as np
import pytest

from anyjax.errors import Unsupported
from anyjax.stablehlo.core.schema import overloads
from tests.stablehlo.texts import called, function

pytestmark = pytest.mark.sample(every=8)

X = np.arange(6, dtype=np.float32).reshape(2, 3)
T = "tensor<2x3xf32>"
SUM = """({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %s = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %s : tensor<f32> })"""
ALONE, TWO = "dense<[[0]]> : tensor<1x1xi64>", "dense<[[0, 1]]> : tensor<1x2xi64>"


def reduce(groups):
    return f'"stablehlo.all_reduce"(%0) {SUM} {{replica_groups = {groups}}} : ({T}) -> {T}'


OPERATIONS = {
    "all_reduce": reduce(ALONE),
    "all_gather": '"stablehlo.all_gather"(%0) {all_gather_dim = 0 : i64, '
    f"replica_groups = {ALONE}}} : ({T}) -> {T}",
    "all_to_all": '"stablehlo.all_to_all"(%0) {split_dimension = 0 : i64, '
    f"concat_dimension = 1 : i64, split_count = 1 : i64, replica_groups = {ALONE}}} : ({T}) -> {T}",
    "reduce_scatter": f'"stablehlo.reduce_scatter"(%0) {SUM} {{scatter_dimension = 0 : i64, '
    f"replica_groups = {ALONE}}} : ({T}) -> {T}",
    "collective_broadcast": f'"stablehlo.collective_broadcast"(%0) {{replica_groups = {ALONE}}} : '
    f"({T}) -> {T}",
    "cross-replica-sum": f'"stablehlo.cross-replica-sum"(%0) {{replica_groups = {ALONE}}} : '
    f"({T}) -> {T}",
    "collective_permute": '"stablehlo.collective_permute"(%0) {source_target_pairs = '
    f"dense<[[0, 0]]> : tensor<1x2xi64>}} : ({T}) -> {T}",
}


if overloads("stablehlo.collective_reduce"):  # since JAX 0.12
    OPERATIONS["collective_reduce"] = reduce(ALONE).replace("all_", "collective_")


@pytest.mark.parametrize("name", OPERATIONS)
def test_alone(name):
    text = function("2x3xf32", "2x3xf32", f"%out = {OPERATIONS[name]}")
    np.testing.assert_array_equal(called(text, X), X)


def test_several():
    with pytest.raises(Unsupported, match="all_reduce among several devices"):
        called(function("2x3xf32", "2x3xf32", f"%out = {reduce(TWO)}"), X)
