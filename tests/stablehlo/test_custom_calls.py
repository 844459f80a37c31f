"""Calls by name: JAX's own, MHLO's, the user's, and unknown ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import anyjax
from anyjax.errors import MissingOps, Unsupported, WrongArguments
from tests.stablehlo.texts import called, function
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.array([0.5, -0.25, 0.75], np.float32)


def call(target, result="3xf32", attributes=""):
    body = f"%out = stablehlo.custom_call @{target}(%0) {{{attributes}}} : "
    return function("3xf32", result, body + f"(tensor<3xf32>) -> tensor<{result}>")


@pytest.mark.parametrize("name", ["erf", "tan", "asin", "sinh", "erf_inv"])
def test_functions_of_mhlo(name):
    assert_close(called(call(f"mhlo.{name}"), X), getattr(jax.lax, name)(X))


@pytest.mark.parametrize("name", ["Sharding", "annotate_device_placement", "LayoutConstraint"])
def test_places(name):
    np.testing.assert_array_equal(called(call(name), X), X)


def test_parts():
    np.testing.assert_array_equal(called(call("SPMDFullToShardShape"), X), X)
    with pytest.raises(Unsupported, match="several devices"):
        called(call("SPMDFullToShardShape", "1xf32"), X)


def test_topk():
    options = "mhlo.attributes = {k = 2 : i64, largest = false}"
    body = f"%out:2 = stablehlo.custom_call @mhlo.topk(%0) {{{options}}} : "
    kinds = "(tensor<3xf32>) -> (tensor<2xf32>, tensor<2xi32>)"
    values, places = called(function("3xf32", "2xf32 2xi32", body + kinds), X)
    assert (values.tolist(), places.tolist()) == ([-0.25, 0.5], [1, 0])


def test_unknown():
    with pytest.raises(MissingOps, match="'my_kernel' is unknown") as error:
        called(call("my_kernel"), X)
    assert error.value.ops == ("my_kernel",)


def test_served(monkeypatch):
    monkeypatch.setattr("anyjax.stablehlo.custom_calls.CALLS", {})
    anyjax.stablehlo.serves("my_kernel")(lambda operands, attributes, types: [operands[0] * 2])
    text = call("my_kernel")
    assert_close(called(text, X), X * 2)
    assert_close(jax.grad(lambda x: called(text, x).sum())(X), np.full(3, 2, np.float32))


def test_shape_assertion():
    even = export.symbolic_shape("2*b")
    exported = export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct(even, np.float32))
    model = anyjax.from_stablehlo(exported.serialize())
    assert_close(model.apply({}, np.ones(4, np.float32)), np.sin(np.ones(4, np.float32)))
    with pytest.raises(WrongArguments, match="Division had remainder 1"):
        model.apply({}, np.ones(3, np.float32))


def test_threefry():
    body = """%out:2 = stablehlo.custom_call @cu_threefry2x32_ffi(%0, %0, %1, %1)
      {api_version = 4 : i32}
      : (tensor<3xui32>, tensor<3xui32>, tensor<3xui32>, tensor<3xui32>)
      -> (tensor<3xui32>, tensor<3xui32>)"""
    key, count = np.zeros(3, np.uint32), np.arange(3, dtype=np.uint32)
    got = called(function("3xui32 3xui32", "3xui32 3xui32", body), key, count)
    assert int(got[0][0]) == 0x6B200159 and int(got[1][0]) == 0x99BA4EFE  # the paper's first vector
