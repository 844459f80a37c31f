"""Triangles that JAX never asks for."""

import numpy as np
import pytest

from tests.stablehlo.texts import called, function
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)

A = np.array([[4, 1, 0.5], [1, 5, 2], [0.5, 2, 6]], np.float32)
B = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower):
    body = f'%out = "stablehlo.cholesky"(%0) {{lower = {str(lower).lower()}}} : '
    out = called(function("3x3xf32", "3x3xf32", body + "(tensor<3x3xf32>) -> tensor<3x3xf32>"), A)
    half = out if lower else out.T
    assert_close(half @ half.T, A, reduction=64)
    assert_close(out, np.tril(out) if lower else np.triu(out))


@pytest.mark.parametrize("turn", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(turn):
    body = f"""%out = "stablehlo.triangular_solve"(%0, %1) {{left_side = true, lower = false,
        unit_diagonal = false, transpose_a = #stablehlo<transpose {turn}>}}
      : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>"""
    solution = called(function("3x3xf32 3x2xf32", "3x2xf32", body), A, B)
    upper = np.triu(A) if turn == "NO_TRANSPOSE" else np.triu(A).T
    assert_close(upper @ solution, B, reduction=64)
