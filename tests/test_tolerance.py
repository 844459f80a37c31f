import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tolerance import assert_close, tolerance


def test_the_formula():
    eps = np.finfo(np.float32).eps
    assert tolerance(np.float32) == 4 * eps
    assert tolerance(np.float32, 100) == pytest.approx(40 * eps)
    assert tolerance(jnp.bfloat16) == 4 * 2.0**-7
    assert tolerance(np.complex64) == tolerance(np.float32)
    assert tolerance(np.int64) == tolerance(np.bool_) == 0
    with pytest.raises(ValueError, match="at least one term"):
        tolerance(np.float32, 0)


SAME = [
    (1, 1),
    (np.float32(1), np.float32(1 + 2e-7)),
    ([np.zeros((0, 3))], [np.zeros((0, 3))]),
    (np.array([np.nan, np.inf, 1]), jnp.array([np.nan, np.inf, 1])),
    (np.array([1e6, 0.0], np.float32), np.array([1e6, 0.1], np.float32)),
    (jnp.array(1 + 2j), np.complex64(1 + 2j)),
    (jax.random.key(3), jax.random.key(3)),
    ({"a": (True, None)}, {"a": (np.array(True), None)}),
]
DIFFERENT = [
    (1, 2, "error 1"),
    (np.float32(1), np.float32(1 + 2e-6), "largest error"),
    (np.zeros(3), np.zeros((1, 3)), "shape"),
    (np.array([0.0, np.nan]), np.array([0.0, 1.0]), r"NaN on one side only at \[1\]"),
    (np.array([np.inf]), np.array([-np.inf]), "inf on one side only"),
    (np.array([1e9, np.inf]), np.array([1e9, 1.0]), "inf on one side only"),
    (np.array([0.0, 1e-9]), np.zeros(2), "allowed 0"),
    (2**62 + 1, 2**62, "error 1"),
    (np.complex64(1 + 2j), np.complex64(1 - 2j), "error 4"),
    (jax.random.key(3), jax.random.key(4), "error"),
    ([1, 2], (1, 2), "structures differ"),
    ({"a": 1}, {"b": 1}, "structures differ"),
    ("text", "text", "no array but a str"),
]


@pytest.mark.parametrize("got, want", SAME)
def test_equal_up_to_rounding(got, want):
    assert_close(got, want)


@pytest.mark.parametrize("got, want, message", DIFFERENT)
def test_differences_are_found(got, want, message):
    with pytest.raises(AssertionError, match=message):
        assert_close(got, want)


def test_the_message_names_the_leaf():
    got = {"layers": [np.ones(2), np.ones((2, 2), np.float32)]}
    want = {"layers": [np.ones(2), np.array([[1, 1], [3, 1]], np.float32)]}
    with pytest.raises(AssertionError, match=r"\['layers'\]\[1\] float32\[2,2\].*2 at \[1, 0\]"):
        assert_close(got, want)


def test_reduction_rtol_and_scale_widen_it():
    got, want = np.float32(1), np.float32(1 + 2e-6)
    assert_close(got, want, reduction=100)
    assert_close(got, want, rtol=1e-5)
    assert_close(got, want, scale=10.0)


def test_torch_leaves():
    torch = pytest.importorskip("torch")
    values = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    assert_close(jnp.array([1, 2], jnp.bfloat16), values)
    assert_close(jnp.array([1 - 2j]), torch.tensor([1 + 2j]).conj())
    with pytest.raises(AssertionError, match="bfloat16"):
        assert_close(jnp.array([1, 2.25], jnp.bfloat16), values)
