"""The parser: forms of modules, and errors that name what is missing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyjax
from anyjax.errors import BadCheckpoint, MissingOps
from tests.stablehlo.texts import called, function
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X = np.arange(4, dtype=np.float32)


def lowered(dialect):
    return jax.jit(lambda x: (jnp.sin(x), x.sum())).lower(X).compiler_ir(dialect)


def test_hlo_proto():
    model = anyjax.from_stablehlo(lowered("hlo").as_serialized_hlo_module_proto())
    assert_close(model.apply({}, X), (np.sin(X), X.sum()))


def test_mhlo():
    text = """module { func.func @main(%0: tensor<4xf32>) -> tensor<4xf32> {
      %1 = mhlo.add %0, %0 : tensor<4xf32>
      %2 = "mhlo.erf"(%1) : (tensor<4xf32>) -> tensor<4xf32>
      return %2 : tensor<4xf32> } }"""
    assert_close(called(text, X), jax.lax.erf(2 * X))


def test_missing_operations_are_named():
    body = '%out = "my.op"(%0) : (tensor<4xf32>) -> tensor<4xf32>'
    with pytest.raises(MissingOps, match=r"no lowering for my\.op") as error:
        anyjax.from_stablehlo(function("4xf32", "4xf32", body))
    assert error.value.ops == ("my.op",)


def sources():
    exported = jax.export.export(jax.jit(jnp.sin))(X)
    proto = lowered("hlo").as_serialized_hlo_module_proto()
    return {
        "artifact": exported.mlir_module_serialized,
        "proto": proto,
        "file": exported.serialize(),
    }


@pytest.mark.parametrize("name", ["artifact", "proto", "file"])
@pytest.mark.parametrize("count", [0, 3, 10, 40, 300])
def test_truncated(name, count):
    with pytest.raises(BadCheckpoint):
        anyjax.from_stablehlo(bytes(sources()[name])[:count])


@pytest.mark.parametrize("source", [b"hello", "module { nonsense }", 3, b"\x00\xff" * 40])
def test_something_else(source):
    with pytest.raises(BadCheckpoint):
        anyjax.from_stablehlo(source)
