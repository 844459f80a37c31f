"""Copies and pickles of models that were called."""

import copy
import pickle

import jax
import numpy as np
import pytest

from anyjax.errors import Unsupported
from tests.properties.subjects import UNPICKLED

pytestmark = pytest.mark.sample(every=8)


def test_deep_copies(subject):
    """Their arrays are their own, and their programs those of the model."""
    jax.block_until_ready(subject.out)
    model = copy.deepcopy(subject.model)
    assert model.source is subject.model.source
    for old, new in zip(jax.tree.leaves(subject.model), jax.tree.leaves(model), strict=True):
        assert new is not old
    jax.tree.map(np.testing.assert_array_equal, subject.call(model), subject.out)


def test_pickles(subject, request):
    jax.block_until_ready(subject.out)
    if subject.name in UNPICKLED:
        with pytest.raises(Unsupported, match=r"pickle of(.|\n)*model\.save"):
            pickle.dumps(subject.model)
        return
    model = pickle.loads(pickle.dumps(subject.model))
    assert [*model.params] == [*subject.model.params]
    jax.tree.map(np.testing.assert_array_equal, subject.call(model), subject.out)
    assert model.train().source.training == subject.model.train().source.training
