"""Converting, calling and training leave the module, the params and the process as they were."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyjax
from tests.properties import state, subjects

pytestmark = pytest.mark.sample(every=40)


@pytest.mark.parametrize("subject", subjects.TORCH, indirect=True)
def test_nothing_changes(subject):
    before = state.of_module(subject.module), state.of_process()
    model = anyjax.from_torch(subject.module)
    arrays = jax.tree.map(np.array, (model.params, model.state))
    subject.call(model)
    run = partial(subject.apply, arrays=subject.arrays, model=model.train(), mutable=True)
    loss = lambda params: subjects.total(run(params)[0])
    grads = jax.jit(jax.grad(loss))(model.params)
    trained = model.with_params(jax.tree.map(lambda p, g: p - 0.1 * g, model.params, grads))
    assert any(map(jnp.any, jax.tree.leaves(grads)))
    trained.eval()
    jax.tree.map(np.testing.assert_array_equal, (model.params, model.state), arrays)
    assert (state.of_module(subject.module), state.of_process()) == before
