"""The ten files that show what users get are what is written, and are right."""

import pytest

import anyjax
from tests.flax.codegen.goldens import GOLDENS, file_of, made
from tests.flax.codegen.running import assert_same_outputs, loaded

pytestmark = pytest.mark.sample(every=15)


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda x: x.__name__)
def test_golden(golden):
    """``python -m tests.flax.codegen.goldens`` writes them anew; read what changed."""
    module, inputs = made(golden)
    assert anyjax.flax.source(module, **inputs) == file_of(golden).read_text()
    assert_same_outputs(module, loaded(file_of(golden).read_text()), inputs)
