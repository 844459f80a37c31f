"""Arrays equal torch's up to rounding, and no more."""

import numpy as np
import pytest
import torch

from proof.comparison import Wrong, compare, first_line, settle

ONES = [np.ones(3, np.float32)]


def test_up_to_a_part_of_the_largest_value():
    compare([np.array([1.0, 1e-5])], [torch.tensor([1.0, 0.0])], 1e-4)
    for wrong in ([np.array([1.0, 1e-3])], [np.ones(3)], [np.array([np.nan, 0])], []):
        with pytest.raises(Wrong):
            compare(wrong, [torch.tensor([1.0, 0.0])], 1e-4)


def test_infinities_have_to_be_the_same():
    inf = torch.tensor([float("inf"), 1.0])
    compare([inf.numpy()], [inf], 1e-4)
    with pytest.raises(Wrong, match="infinities"):
        compare([-inf.numpy()], [inf], 1e-4)


def test_random_arrays_count_by_shape():
    compare([np.zeros(3)], ONES, 1e-4, random={0})
    with pytest.raises(Wrong, match="shape"):
        compare([np.zeros(4)], ONES, 1e-4, random={0})


def test_what_torch_itself_rounds_off():
    rounded, exact = [torch.tensor([1.0, 3e-3])], lambda: [torch.tensor([1.0, 0.0]).double()]
    settle([np.array([1.0, 0.0])], rounded, exact, 1e-4)
    settle([np.array([1.0, 0.012])], rounded, exact, 1e-4)
    with pytest.raises(Wrong):
        settle([np.array([1.0, 0.013])], rounded, exact, 1e-4)
    with pytest.raises(Wrong):
        settle([np.array([1.0, 0.0])], rounded, list, 1e-4)


def test_an_error_on_one_line():
    assert first_line(ValueError("a  b\nc")) == "ValueError: a b"
    assert first_line(Wrong("array 0 is off")) == "array 0 is off"
