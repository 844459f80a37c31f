"""The artifacts that JAX keeps of its former releases, with what they gave on CPU, GPU and TPU."""

import importlib
import importlib.util
import pkgutil
import warnings

import jax
import numpy as np
import pytest

import anyjax
from tests.expectations import expected_failures
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

FOLDER = "jax._src.internal_test_util.export_back_compat_test_data"
EXPECTED = expected_failures("stablehlo_artifacts.txt")
# Vectors are unique up to a factor of absolute value 1, reflectors up to their sign.
UP_TO_SIGN = ("eig", "Eigh", "svd", "schur", "hessenberg", "tridiagonal_", "qr", "Qr")
# Of several equal eigenvalues any basis is right: the outputs that are the same nevertheless.
UNIQUE = {"eigh": (1,), "Eigh": (1,), "eig_": (0,), "schur": (0,)}


def artifacts(name, value):
    """The records in a module's dictionaries: (where it stands, the record)."""
    if isinstance(value, dict) and "mlir_module_serialized" in value:
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from artifacts(f"{name}-{key}", inner)


def every():
    if importlib.util.find_spec(FOLDER) is None:
        return {}
    package = importlib.import_module(FOLDER)
    found = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg:  # Pallas' kernels
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(f"{FOLDER}.{info.name}")
        for key, value in vars(module).items():
            if key.startswith("data"):
                found.update(artifacts(f"{info.name}-{key.removeprefix('data_')}", value))
    return found


ARTIFACTS = every()


def cases():
    for i, name in enumerate(ARTIFACTS):
        marks = [] if i % 8 == 0 else [pytest.mark.conformance]
        yield pytest.param(name, id=name.replace(" ", ""), marks=marks)


@pytest.mark.parametrize("name", list(cases()))
def test_artifact(name):
    try:
        unique = next((places for word, places in UNIQUE.items() if word in name), None)
        wrong = run(ARTIFACTS[name], any(x in name for x in UP_TO_SIGN), unique)
    except Exception as error:
        if name not in EXPECTED:
            raise
        wrong = str(error)
    jax.clear_caches()
    if name in EXPECTED:
        assert wrong, f"passes now, though it should not: {EXPECTED[name]}"
        pytest.xfail(EXPECTED[name])
    assert not wrong, wrong


def run(record, up_to_sign, unique):
    inputs = [np.asarray(x) for x in record["inputs"]]
    outputs = [np.asarray(x) for x in record["expected_outputs"]]
    wide = any(x.dtype.itemsize // (1 + np.iscomplexobj(x)) == 8 for x in [*inputs, *outputs])
    with jax.enable_x64(wide):
        model = anyjax.from_stablehlo(record["mlir_module_serialized"])
        got = [np.asarray(x) for x in jax.tree.leaves(jax.jit(model.apply)({}, *inputs))]
    pairs = list(zip(got, outputs, strict=True))
    pairs = [pairs[i] for i in unique] if unique else pairs
    if up_to_sign:
        pairs = [(np.abs(x), np.abs(y)) for x, y in pairs]
    try:
        assert_close([x for x, _ in pairs], [y for _, y in pairs], reduction=10**5)
    except AssertionError as error:
        return str(error)
    return ""


def test_expected_failures_are_artifacts():
    assert {*EXPECTED} <= {*ARTIFACTS}
