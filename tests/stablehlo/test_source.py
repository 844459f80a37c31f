"""From bytes to a model, and calls with the wrong arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import anyjax
from anyjax.errors import BadCheckpoint, Unsupported, WrongArguments
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

X, Y = np.ones((2, 3), np.float32), np.arange(4, dtype=np.float32)


def exported(function=lambda x, y: {"a": jnp.sin(x), "b": y * 2}, **options):
    return export.export(jax.jit(function), **options)(X, Y)


def test_structure():
    out = anyjax.from_stablehlo(exported()).apply({}, X, Y)
    assert_close(out, {"a": np.sin(X), "b": Y * 2})


def test_keyword_arguments():
    function = jax.jit(lambda x, *, scale: x * scale["s"])
    model = anyjax.from_stablehlo(export.export(function)(X, scale={"s": X}).serialize())
    assert_close(model.apply({}, X, scale={"s": 2 * X}), 2 * X)


def test_unused_arguments():
    """Arguments that the function does not read are no arguments of its module."""
    model = anyjax.from_stablehlo(exported(lambda x, y: y + 1).serialize())
    assert_close(model.apply({}, X, Y), Y + 1)


@pytest.mark.parametrize("form", ["text", "artifact", "file"])
def test_bare_modules(form, tmp_path):
    module = exported()
    path = tmp_path / "module.mlir"
    path.write_bytes(module.mlir_module_serialized)
    forms = {
        "text": str(module.mlir_module()),
        "artifact": module.mlir_module_serialized,
        "file": path,
    }
    sine, double = anyjax.from_stablehlo(forms[form]).apply({}, X, Y)
    assert_close((sine, double), (np.sin(X), Y * 2))


def test_several_platforms():
    """The one that runs is chosen."""
    choose = lambda x, y: jax.lax.platform_dependent(y, cpu=jnp.sin, default=jnp.cos)
    model = anyjax.from_stablehlo(exported(choose, platforms=["tpu", "cpu"]).serialize())
    want = np.sin(Y) if jax.default_backend() == "cpu" else np.cos(Y)
    assert_close(model.apply({}, X, Y), want)


WRONG = {"too few": (X,), "shape": (X, X), "dtype": (X, Y.astype(np.int32)), "too many": (X, Y, Y)}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("bare", [False, True])
def test_wrong_arguments(what, bare):
    module = exported()
    model = anyjax.from_stablehlo(module.mlir_module_serialized if bare else module.serialize())
    with pytest.raises(WrongArguments):
        model.apply({}, *WRONG[what])


def test_no_training_mode():
    with pytest.raises(Unsupported, match="no training mode"):
        anyjax.from_stablehlo(exported()).source.in_mode(True)


def test_missing_file(tmp_path):
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        anyjax.from_stablehlo(tmp_path / "none.mlir")


def test_integers_that_32_bits_do_not_hold():
    with jax.enable_x64(True):
        shapes = jax.ShapeDtypeStruct((1,), "int64"), jax.ShapeDtypeStruct((1,), "int32")
        program = export.export(jax.jit(lambda x, y: (x * x, y * y, x + 0.5)))(*shapes)
    model = anyjax.from_stablehlo(program.serialize())
    small, wraps = np.int64([3]), np.int32([2**20])
    assert [x.tolist() for x in model(small, wraps)[:2]] == [[9], [0]]
    for call in (model, lambda *x: model.apply({}, *x)):
        with pytest.raises(Unsupported, match=r"multiply gives 64-bit integers beyond"):
            call(np.int64([2**20]), wraps)
    assert np.isnan(jax.jit(model.apply)({}, np.int64([2**20]), wraps)[2]).all()


ROW = np.array([0, 0])
WIDE = {
    "add": lambda x: x + x,
    "negate": lambda x: -(-x - x),
    "divide": lambda x: jax.lax.div(-x - x, x * 0 - 1),
    "power": lambda x: x**2,
    "dot_general": lambda x: jnp.vdot(x, x),
    "reduce": jnp.sum,
    "a product": jnp.prod,
    "reduce_window": jnp.cumsum,
    "shift_left": lambda x: x << 1,
    "scatter": lambda x: x.at[ROW].add(x),
    "a product scattered": lambda x: x.at[ROW].multiply(x),
    "convert": lambda x: (x.astype("float32") * 4).astype("int64"),
    "of uint32": lambda x: (x.astype("uint32") * 2).astype("int64"),
    "uint64": lambda x: (x.astype("uint64") * 4).astype("int64"),
    "convolution": lambda x: jax.lax.conv(x[None, None], x[None, None], (1,), "SAME"),
    "a next position": lambda x: x + 1,
}


@pytest.mark.parametrize("name", WIDE)
def test_no_operation_wraps_in_silence(name):
    small, large = np.int64([3, 3]), np.int64([2**31 - 1 if "position" in name else 2**30] * 2)
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct((2,), "int64")
        program = export.export(jax.jit(lambda x: (WIDE[name](x), x + 0.5)))(shape)
        want = np.asarray(WIDE[name](jnp.asarray(small)))
    model = anyjax.from_stablehlo(program.serialize())
    np.testing.assert_array_equal(model(small)[0], want)
    for call in (model, lambda x: model.apply({}, jnp.asarray(x))):
        with pytest.raises(Unsupported, match="jax_enable_x64"):
            call(large)
