"""Functions of unknown sizes: exported once, called with two sizes, exported again."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import anyjax
from tests.conformance.stablehlo_cases.shapes import CASES, SIZES
from tests.expectations import expected_failures
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

SAMPLE = sorted(CASES)[::8]
EXPECTED = expected_failures("stablehlo_shapes.txt")


def arguments(spec: str, sizes: dict[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    number = lambda n: eval(n, dict(sizes))
    shapes = [[number(n) for n in shape.split(",")] for shape in spec.split()]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def symbols(spec: str) -> list[jax.ShapeDtypeStruct]:
    scope = export.SymbolicScope([f"{n} >= 2" for n in sorted({*re.findall("[a-z]", spec)})])
    shapes = [export.symbolic_shape(shape, scope=scope) for shape in spec.split()]
    return [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]


def cases():
    for name in CASES:
        marks = [] if name in SAMPLE else [pytest.mark.conformance]
        if name in EXPECTED:
            marks.append(pytest.mark.xfail(reason=EXPECTED[name], strict=True))
        yield pytest.param(name, id=name, marks=marks)


@pytest.mark.parametrize("name", list(cases()))
def test_unknown_sizes(name):
    spec, function = CASES[name]
    flat = lambda *xs: tuple(jax.tree.leaves(function(*xs)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = anyjax.from_stablehlo(export.export(jax.jit(flat))(*symbols(spec)).serialize())
    call = lambda *xs: model.apply({}, *xs)
    again = export.export(jax.jit(call))(*symbols(spec))
    for sizes in SIZES:
        args = arguments(spec, sizes)
        want = jax.jit(flat)(*args)
        assert_close(jax.jit(call)(*args), want, reduction=256)
        assert_close(again.call(*args), want, reduction=256)
    args = [jnp.asarray(x) for x in args]
    ours, theirs = (jax.jit(jax.grad(loss(f)))(*args) for f in (call, flat))
    assert_close(ours, theirs, reduction=1024)
    jax.clear_caches()


def loss(function):
    floats = lambda *xs: [y for y in function(*xs) if jnp.issubdtype(y.dtype, jnp.floating)]
    return lambda *xs: sum((jnp.sin(y).sum() for y in floats(*xs)), jnp.float32(0))


def test_expected_failures_are_cases():
    assert {*EXPECTED} <= {*CASES}
