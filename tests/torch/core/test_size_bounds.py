"""What is known of symbolic sizes, and of numbers that they make."""

import jax
import pytest

from anyjax.torch.core.size_bounds import product, ratio, whole

(LENGTH,) = jax.export.symbolic_shape("length")


@pytest.mark.parametrize(("number", "want"), [(0.5, (1, 2)), (3, (3, 1)), (0.1, None)])
def test_numbers_that_are_exact(number, want):
    assert ratio(number) == want


def test_integers_of_ratios():
    half = product((LENGTH, 1), ratio(0.5))
    assert whole(*half, "floor") == whole(*half, "trunc") == LENGTH // 2
    assert whole(*half, "ceil") == -(-LENGTH // 2)
    assert whole(*half, "round") is None
    assert whole(LENGTH, 1, "round") == LENGTH
    assert whole(-LENGTH, 2, "trunc") is None
    assert product(half, None) is None
