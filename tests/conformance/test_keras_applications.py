"""Two small architectures in `make test`, all of keras.applications in `make conformance`."""

import jax
import pytest

pytest.importorskip("tensorflow")

import keras

from tests.conformance.keras_applications import NAMES, run
from tests.conformance.record import modes
from tests.sampling import further

pytestmark = pytest.mark.sample(every=2)


@pytest.mark.parametrize("name", [*NAMES[:2], *further(*NAMES[2:])])
def test_as_keras_has_it(name, record_property):
    found = run(name)
    record_property("modes", modes(found, {}))
    wrong = {mode: said for mode, said in found.items() if said}
    jax.clear_caches()
    keras.backend.clear_session()
    assert not wrong, wrong


def test_every_architecture():
    assert {*NAMES} == {n for n in vars(keras.applications) if n[0].isupper()}
