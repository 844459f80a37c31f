"""TensorFlow functions as users write them: value, eager value, gradients, vmap; what is refused.

``make test`` runs every tenth, ``make conformance`` all. What is known not to work stands in
tests/expect/tensorflow_set.txt by case and mode.
"""

import jax
import keras
import numpy as np
import pytest

import anyjax
from tests.conformance import tensorflow_set
from tests.conformance.record import modes
from tests.conformance.tensorflow_cases import refused
from tests.expectations import complaints, expected_failures

pytestmark = pytest.mark.sample(every=3)

EXPECTED = expected_failures("tensorflow_set.txt")
NAMES = [*tensorflow_set.CASES]


def cases():
    for i, name in enumerate(NAMES):
        marks = [] if i % 10 == 0 else [pytest.mark.conformance]
        yield pytest.param(name, id=name, marks=marks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(cases()))
def test_case(name, record_property):
    found = tensorflow_set.run(name)
    expected = {key: why for key, why in EXPECTED.items() if key.partition(" ")[0] == name}
    reasons = {key.partition(" ")[2]: why for key, why in expected.items()}
    record_property("modes", modes(found, reasons))
    failed = {f"{name} {mode}": wrong for mode, wrong in found.items() if wrong}
    jax.clear_caches()
    keras.backend.clear_session()
    assert not (wrong := complaints(failed, expected)), "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", refused.CASES)
def test_refused(name):
    x = np.array([1.5, -2.0, 3.0, 0.5], np.float32)
    model = anyjax.from_tensorflow(refused.CASES[name], x)
    with pytest.raises(anyjax.errors.AnyjaxError) as caught:
        jax.jit(lambda x: model.apply({}, x))(x)
    lines = str(caught.value).splitlines()
    words = [line.split(":")[0].strip() for line in lines[1:]]
    assert words == ["where", "why", "do", "see"]


def test_expected_failures_are_cases():
    modes = {f"{name} {mode}" for name in NAMES for mode in tensorflow_set.MODES}
    assert {*EXPECTED} <= modes
