"""Writes: where values lie after one, and results that go into ``out``."""

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from tests.torch.beside_torch import assert_same_gradients, assert_same_values


def written_in_another_order(x):
    y = x * 1
    y.t().cumsum_(0)
    return y.as_strided((6,), (1,), 0), y


def written_by_rows(x):
    y = (x * 1).t()
    y.index_fill_(0, torch.tensor([1]), 5.0)
    return y.as_strided((3,), (2,), 1)


@pytest.mark.parametrize("function", [written_in_another_order, written_by_rows])
def test_what_is_written_lies_where_it_did(function):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_same_values(function, x)
    assert_same_gradients(function, x)


def matmul_into(x):
    out = torch.empty(2, 2)
    same = torch.matmul(x, x.t(), out=out)
    same.add_(1)
    return out


def fft_into_a_row(x):
    out = torch.zeros(2, 3, dtype=torch.complex64)
    torch.fft.fft(x[0], out=out[1])
    return out.real


def max_into(x):
    values, places = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    torch.max(x, 1, out=(values, places))
    return values + places


@pytest.mark.parametrize("function", [matmul_into, fft_into_a_row, max_into])
def test_results_of_any_operator_go_into_out(function):
    assert_same_values(function, np.arange(6, dtype=np.float32).reshape(2, 3) % 4)


def test_out_of_another_dtype_is_an_error():
    model = anyjax.from_torch(lambda x: torch.matmul(x, x, out=torch.zeros(2, 2, dtype=torch.int)))
    with pytest.raises(Unsupported, match="which an out of int32"):
        model(np.ones((2, 2), np.float32))
