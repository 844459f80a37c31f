"""All ways to call a model give the same output."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)


def stacked(*trees):
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


@pytest.mark.sample(every=20)
def test_jit_equals_no_jit(subject):
    out = subject.apply(subject.model.params, subject.arrays)
    assert_close(out, subject.out, reduction=subject.size)


def test_vmap_equals_the_batch(subject):
    """Its rows, or where rows are not alone two batches, one of them turned around."""
    run = jax.jit(jax.vmap(subject.function(), (None, 0)))
    if subject.rows:
        rows = jax.tree.map(lambda x: x[:, None], subject.arrays)
        got = jax.tree.map(lambda x: x[:, 0], run(subject.model.params, rows))
        assert_close(got, subject.out, reduction=subject.size)
    else:
        other = jax.tree.map(lambda x: np.array(x[::-1]), subject.arrays)
        got = run(subject.model.params, stacked(subject.arrays, other))
        want = stacked(subject.out, subject.call(arrays=other))
        assert_close(got, want, reduction=subject.size)


def test_calls_agree_to_the_bit(subject):
    jax.tree.map(np.testing.assert_array_equal, subject.call(), subject.out)


@pytest.mark.sample(every=24)
def test_donated_arrays_are_nobody_elses(subject):
    """Neither the source's nor those of another conversion."""
    model = subject.convert()
    copies = jax.tree.map(np.array, (model.params, subject.arrays))

    def step(params, arrays):
        out = subject.apply(params, arrays, model)
        return out, jax.tree.map(jnp.negative, params)

    out, params = jax.jit(step, donate_argnums=0)(model.params, subject.arrays)
    assert all(x.is_deleted() for x in jax.tree.leaves(model.params))
    assert_close(out, subject.out, reduction=subject.size)
    again = subject.convert()
    jax.tree.map(np.testing.assert_array_equal, (again.params, subject.arrays), copies)
    jax.tree.map(np.testing.assert_array_equal, subject.call(), subject.out)
    assert_close(jax.tree.map(jnp.negative, params), copies[0], rtol=0.0)
