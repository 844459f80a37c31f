"""Tracers of a model's forward and backward pass do not outlive its trace."""

import jax
import pytest

from tests.properties.subjects import total

pytestmark = pytest.mark.sample(every=4)


def test_tracers_do_not_leak(subject):
    run, params = subject.function(), subject.model.params
    loss = lambda params: total(run(params, subject.arrays))
    with jax.checking_leaks():
        jax.jit(jax.value_and_grad(loss) if params else loss).lower(params)
