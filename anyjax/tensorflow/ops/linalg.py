"""Linear algebra: linear systems, factors, eigenvalues, singular values, functions of matrices.

Where TensorFlow raises for a singular matrix, or for one that is not positive definite, the result
is infinite or NaN: a compiled program cannot raise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.tensorflow.core.schema import lowers, table

# Linear systems.


def dagger(x):
    """Returns the conjugate transpose of the last two axes."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def batched(*matrices):
    """Broadcasts the leading axes of matrices."""
    batch = np.broadcast_shapes(*(m.shape[:-2] for m in matrices))
    return [jnp.broadcast_to(m, (*batch, *m.shape[-2:])) for m in matrices]


def from_lower(x):
    """Returns the Hermitian matrix with this lower triangle."""
    return jnp.tril(x) + dagger(jnp.tril(x, -1))


@lowers("Cholesky")
def cholesky(input):
    """Reads the lower triangle; the gradient is that of a Hermitian matrix."""
    half = (input + dagger(input)) / 2
    matrix = half + lax.stop_gradient(from_lower(input) - half)
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


@lowers("CholeskyGrad")
def cholesky_grad(l, grad):
    """Returns the gradient for the matrix, from its factor and the gradient for that."""
    middle = jnp.tril(jnp.swapaxes(l, -1, -2) @ grad)
    middle = middle - jnp.eye(l.shape[-1], dtype=l.dtype) * middle / 2
    solution = triangular(l, middle, True, True)
    solution = dagger(triangular(l, dagger(solution), True, True))
    return (solution + dagger(solution)) / 2


def triangular(a, b, lower, adjoint):
    a, b = batched(a, b)
    return lax.linalg.triangular_solve(
        a, b, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint
    )


def solve(matrix, rhs, adjoint):
    return jnp.linalg.solve(*batched(dagger(matrix) if adjoint else matrix, rhs))


def inverse(input, adjoint):
    return jnp.linalg.inv(dagger(input) if adjoint else input)


@lowers("BandedTriangularSolve")
def banded_triangular_solve(matrix, rhs, lower, adjoint):
    """The rows of ``matrix`` are diagonals: the main one first if lower, else last."""
    bands, size = matrix.shape[-2:]
    row, column = np.indices((size, size))
    band = row - column if lower else bands - 1 - (column - row)
    inside = (band >= 0) & (band < bands) & ((row >= column) if lower else (row <= column))
    full = matrix[..., np.where(inside, band, 0), row]
    return triangular(jnp.where(inside, full, 0), rhs, lower, adjoint)


table.update(
    {
        "MatrixTriangularSolve": lambda matrix, rhs, lower, adjoint: triangular(
            matrix, rhs, lower, adjoint
        ),
        "MatrixSolve": solve,
        "MatrixInverse": inverse,
    }
)


@lowers("LogMatrixDeterminant")
def log_determinant(input):
    sign, size = jnp.linalg.slogdet(input)
    return sign, size.astype(input.dtype)


@lowers("MatrixDeterminant")
def determinant(input):
    return jnp.linalg.det(input) if input.shape[-1] else jnp.ones(input.shape[:-2], input.dtype)


@lowers("MatrixSolveLs")
def solve_least_squares(matrix, rhs, l2_regularizer, fast):
    """Solves the normal equations if ``fast``, else takes the shortest solution of the SVD."""
    if not fast:
        return jnp.linalg.pinv(matrix) @ rhs
    rows, columns = matrix.shape[-2:]
    adjoint = dagger(matrix)
    regular = l2_regularizer.astype(matrix.dtype) * jnp.eye(min(rows, columns), dtype=matrix.dtype)
    if rows >= columns:
        return jnp.linalg.solve(adjoint @ matrix + regular, adjoint @ rhs)
    return adjoint @ jnp.linalg.solve(matrix @ adjoint + regular, rhs)


@lowers("Lu")
def lu(input, output_idx_type):
    factors, _, permutation = lax.linalg.lu(input)
    return factors, permutation.astype(output_idx_type)


@lowers("Qr")
def qr(input, full_matrices):
    return tuple(lax.linalg.qr(input, full_matrices=full_matrices))


@lowers("TridiagonalSolve")
def tridiagonal_solve(diagonals, rhs, partial_pivoting, perturb_singular):
    """Diagonals above, on and below the main one; elements outside of the matrix are not read."""
    above, main, below = (diagonals[..., i, :] for i in range(3))
    above, below = above.at[..., -1].set(0), below.at[..., 0].set(0)
    return lax.linalg.tridiagonal_solve(below, main, above, rhs)


@lowers("TridiagonalMatMul")
def tridiagonal_matmul(superdiag, maindiag, subdiag, rhs):
    above, main, below = (jnp.swapaxes(x, -1, -2) for x in (superdiag, maindiag, subdiag))
    edge = [(0, 0)] * (rhs.ndim - 2)
    next_rows = jnp.pad(rhs[..., 1:, :], [*edge, (0, 1), (0, 0)])
    previous_rows = jnp.pad(rhs[..., :-1, :], [*edge, (1, 0), (0, 0)])
    return above * next_rows + main * rhs + below * previous_rows


# Eigenvalues, singular values and functions of matrices.


@lowers("SelfAdjointEigV2")
def self_adjoint_eig(input, compute_v):
    """Reads the lower triangle; without vectors the second output is empty."""
    matrix = from_lower(input)
    if not compute_v:
        values = jnp.linalg.eigvalsh(matrix, symmetrize_input=False)
        return values.astype(input.dtype), jnp.zeros((0,), input.dtype)
    vectors, values = lax.linalg.eigh(matrix, symmetrize_input=False)
    return values.astype(input.dtype), vectors


@lowers("SelfAdjointEig")
def old_self_adjoint_eig(input):
    """The values are the first row, the vectors the others."""
    values, vectors = self_adjoint_eig(input, True)
    return jnp.concatenate([values[..., None, :], vectors], -2)


@lowers("Eig")
def eig(input, compute_v, Tout):
    """Runs LAPACK, on CPUs alone; its vectors have no gradient in JAX."""
    if not compute_v:
        return jnp.linalg.eigvals(input).astype(Tout), jnp.zeros((0,), Tout)
    values, vectors = jnp.linalg.eig(input)
    return values.astype(Tout), vectors.astype(Tout)


@lowers("Svd")
def svd(input, compute_uv, full_matrices):
    if not compute_uv:
        values = jnp.linalg.svd(input, compute_uv=False)
        none = jnp.zeros((0,), input.dtype)
        return values.astype(input.dtype), none, none
    u, values, v = jnp.linalg.svd(input, full_matrices=full_matrices)
    return values.astype(input.dtype), u, dagger(v)


@lowers("XlaSvd")
def xla_svd(a, max_iter, epsilon, precision_config):
    """XLA's own iteration has NaN as derivative."""
    return svd(a, True, False)


@lowers("XlaSelfAdjointEig")
def xla_self_adjoint_eig(a, lower, max_iter, epsilon):
    return self_adjoint_eig(a if lower else dagger(a), True)


def exponential(input, /):
    return jax.scipy.linalg.expm(input)


@jax.custom_jvp
def square_root(input, /):
    """Returns the principal root, by Schur's form."""
    root = jnp.vectorize(jax.scipy.linalg.sqrtm, signature="(n,n)->(n,n)")(input)
    return root if jnp.iscomplexobj(input) else root.real.astype(input.dtype)


@square_root.defjvp
def _square_root_jvp(primals, tangents):
    """Solves R dR + dR R = dA, as one system for all of dR."""
    root = square_root(*primals)
    n = root.shape[-1]
    eye = jnp.eye(n, dtype=root.dtype)
    system = jnp.einsum("...ik,jl->...ijkl", root, eye) + jnp.einsum("ik,...lj->...ijkl", eye, root)
    flat = (*root.shape[:-2], n * n)
    along = jnp.linalg.solve(system.reshape(*flat, n * n), tangents[0].reshape(*flat, 1))
    return root, along.reshape(root.shape)


lowers("MatrixSquareRoot")(square_root)
lowers("MatrixExponential")(exponential)
