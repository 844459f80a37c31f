"""A sample of keras_set.py in `make test`, all of it in `make conformance`."""

import jax
import pytest

pytest.importorskip("tensorflow")

from tests.conformance.keras_set import CASES, run
from tests.conformance.record import modes
from tests.sampling import further

pytestmark = pytest.mark.sample(every=2)

SAMPLE = sorted(CASES)[::12]
OTHERS = [name for name in CASES if name not in SAMPLE]


@pytest.mark.parametrize("name", [*SAMPLE, *further(*OTHERS)])
def test_as_keras_has_it(name, record_property):
    found = run(name)
    record_property("modes", modes(found, {}))
    wrong = {mode: said for mode, said in found.items() if said}
    jax.clear_caches()
    assert not wrong, wrong


def test_every_layer_has_a_case():
    """But for aliases and what needs another framework, a file or no layer at all."""
    import keras

    others = {"FlaxLayer", "JaxLayer", "TorchModuleWrapper", "TFSMLayer", "InputSpec", "Layer"}
    layers = {n: c for n, c in vars(keras.layers).items() if isinstance(c, type)}
    done = {layers.get(name.partition(".")[0]) for name in CASES}
    assert not {n for n, c in layers.items() if c not in done} - others
