"""Tracers of a model's forward and backward pass do not outlive its trace."""

import jax
import pytest

from tests.properties.subjects import total

pytestmark = pytest.mark.sample(every=4)


def test_tracers_do_not_leak(subject):
    run, params = subject.function(), subject.model.params
    with jax.checking_leaks():
        jax.jit(run).lower(params, subject.arrays)
        if params:
            loss = lambda params: total(run(params, subject.arrays))
            jax.jit(jax.grad(loss)).lower(params)
