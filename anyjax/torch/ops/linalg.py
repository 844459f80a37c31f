"""Linear systems: Cholesky, LU, solving, inverses, determinants, least squares.

Where a matrix is singular or not positive definite torch raises; a compiled program cannot, so its
result holds NaN or infinities and ``info`` of the ``_ex`` variants tells. LAPACK numbers the step
that failed; Cholesky's ``info`` is 1 here.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.errors import Unsupported
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import cast, default_int, wide


def dagger(x):
    """The conjugate transpose of the last two axes."""
    x = jnp.swapaxes(x, -1, -2)
    return lax.conj(x) if jnp.iscomplexobj(x) else x


def batched(*matrices):
    """Matrices with their leading axes broadcast."""
    batch = lax.broadcast_shapes(*(m.shape[:-2] for m in matrices))
    return [jnp.broadcast_to(m, (*batch, *m.shape[-2:])) for m in matrices]


def as_matrix(A, B):
    """(B as a matrix, whether it was a batch of vectors): torch decides it by B's shape."""
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])
    return (B[..., None] if vector else B), vector


def triangular(A, B, upper, left=True, unit=False, adjoint=False):
    A, B = batched(A, B)
    return lax.linalg.triangular_solve(
        A,
        B,
        left_side=left,
        lower=not upper,
        unit_diagonal=unit,
        transpose_a=adjoint,
        conjugate_a=adjoint and jnp.iscomplexobj(A),
    )


@lowers(aten.linalg_solve_triangular)
def solve_triangular(self, B, upper, left, unitriangular):
    return triangular(self, B, upper, left, unitriangular)


@lowers(aten.triangular_solve)
def triangular_solve(self, A, upper, transpose, unitriangular):
    """Transposes without conjugating; hands the matrix back."""
    A, self = batched(A, self)
    matrix, upper = (jnp.swapaxes(A, -1, -2), not upper) if transpose else (A, upper)
    return triangular(matrix, self, upper, unit=unitriangular), A


def from_triangle(x, upper=False):
    """The Hermitian matrix that one triangle of x stands for; the gradient is that of all of x."""
    half, strict = (jnp.triu(x), jnp.triu(x, 1)) if upper else (jnp.tril(x), jnp.tril(x, -1))
    return x + lax.stop_gradient(half + dagger(strict) - x)


def hermitian(x, upper=False):
    """As ``from_triangle``, with a gradient that is Hermitian."""
    half = (x + dagger(x)) / 2
    return half + lax.stop_gradient(from_triangle(x, upper) - half)


def cholesky(self, upper):
    factor = lax.linalg.cholesky(hermitian(self, upper), symmetrize_input=False)
    return dagger(factor) if upper else factor


@jax.custom_jvp
def tried(x):
    """Returns the factor of a Hermitian matrix, NaN without a gradient where there is none: code
    that tries another matrix then uses nothing of it, and 0 times the derivative at NaN is NaN.
    """
    return lax.linalg.cholesky(x, symmetrize_input=False)


@tried.defjvp
def _tried(primals, tangents):
    (x,), (tangent,), factor = primals, tangents, tried(*primals)
    failed = jnp.isnan(factor).any((-1, -2))[..., None, None]
    near = jnp.where(failed, jnp.eye(x.shape[-1], dtype=x.dtype), x)
    along = jnp.where(failed, 0, tangent)
    run = partial(lax.linalg.cholesky, symmetrize_input=False)
    return factor, jax.jvp(run, (near,), (along,))[1]


@lowers(aten.linalg_cholesky_ex)
def cholesky_ex(self, upper, check_errors):
    factor = tried(hermitian(self, upper))
    failed = jnp.isnan(factor).any((-1, -2)).astype("int32")
    return dagger(factor) if upper else factor, failed


@lowers(aten.cholesky_inverse)
def cholesky_inverse(self, upper):
    eye = jnp.eye(self.shape[-1], dtype=self.dtype)
    return cholesky_solve(eye, self, upper)


@lowers(aten.cholesky_solve)
def cholesky_solve(self, input2, upper):
    """Only one triangle is read, and only it has a gradient; torch gives the other one, too."""
    factor = dagger(jnp.triu(input2)) if upper else jnp.tril(input2)
    return triangular(factor, triangular(factor, self, False), False, adjoint=True)


table.update(
    {
        aten.cholesky: cholesky,
        aten.linalg_cholesky: cholesky,
        aten.inverse: jnp.linalg.inv,
        aten.linalg_inv: jnp.linalg.inv,
        aten.linalg_matrix_exp: lambda self: cast(jax.scipy.linalg.expm(wide(self)), self.dtype),
    }
)


def lu(A, pivot=True):
    """(LU, pivots counted from 1, permutation, info: the first zero on the diagonal, 0 if none)."""
    if not pivot:
        raise Unsupported("LU without pivoting", why="neither XLA nor torch's CPU kernels have it")
    factors, pivots, permutation = lax.linalg.lu(A)
    zero = jnp.diagonal(factors, axis1=-2, axis2=-1) == 0
    info = jnp.where(zero.any(-1), zero.argmax(-1) + 1, 0) if zero.shape[-1] else zero.any(-1)
    return factors, pivots + 1, permutation, info.astype("int32")


@lowers(aten.linalg_lu_factor_ex)
def lu_factor_ex(A, pivot, check_errors):
    factors, pivots, _, info = lu(A, pivot)
    return factors, pivots, info


@lowers(aten.linalg_lu)
def linalg_lu(A, pivot):
    factors, _, permutation, _ = lu(A, pivot)
    return unpack(factors, permutation)


def unpack(factors, permutation):
    """(P, L, U) with A = P L U."""
    m, n = factors.shape[-2:]
    k = min(m, n)
    low = jnp.tril(factors[..., :k], -1) + jnp.eye(m, k, dtype=factors.dtype)
    P = jax.nn.one_hot(permutation, m, axis=-2, dtype=factors.dtype)
    return P, low, jnp.triu(factors[..., :k, :])


@lowers(aten.lu_unpack)
def lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots):
    """Results that are not asked for are empty."""
    rows = LU_data.shape[-2]
    permutation = lax.linalg.lu_pivots_to_permutation(LU_pivots - 1, rows)
    P, low, up = unpack(LU_data, permutation)
    none = jnp.zeros((0,), LU_data.dtype)
    return P if unpack_pivots else none, *((low, up) if unpack_data else (none, none))


@lowers(aten.linalg_lu_solve)
def lu_solve(LU, pivots, B, left, adjoint):
    if not left:
        return dagger(lu_solve(LU, pivots, dagger(B), True, not adjoint))
    permutation = lax.linalg.lu_pivots_to_permutation(pivots - 1, LU.shape[-1])
    permutation, B = batched(permutation[..., None], B)
    if adjoint:
        B = triangular(LU, triangular(LU, B, True, adjoint=True), False, unit=True, adjoint=True)
        return jnp.take_along_axis(B, jnp.argsort(permutation, -2), -2)
    B = jnp.take_along_axis(B, permutation, -2)
    return triangular(LU, triangular(LU, B, False, unit=True), True)


@lowers(aten.linalg_solve)
def solve(A, B, left):
    if not left:
        return jnp.swapaxes(solve(jnp.swapaxes(A, -1, -2), jnp.swapaxes(B, -1, -2), True), -1, -2)
    matrix, vector = as_matrix(A, B)
    out = jnp.linalg.solve(*batched(A, matrix))
    return out[..., 0] if vector else out


@lowers(aten.linalg_solve_ex)
def solve_ex(A, B, left, check_errors):
    return solve(A, B, left), lu(A)[3]


@lowers(aten._linalg_solve_ex)
def solve_with_factors(A, B, left, check_errors):
    factors, pivots, _, info = lu(A)
    return solve(A, B, left), factors, pivots, info


@lowers(aten.linalg_inv_ex)
def inv_ex(A, check_errors):
    return jnp.linalg.inv(A), lu(A)[3]


@lowers(aten.det, aten.linalg_det)
def det(A, /):
    return jnp.linalg.det(A) if A.shape[-1] else jnp.ones(A.shape[:-2], A.dtype)


@lowers(aten._linalg_det)
def det_with_factors(A):
    return det(A), *lu(A)[:2]


@lowers(aten.linalg_slogdet)
def slogdet(A):
    return tuple(jnp.linalg.slogdet(A))


@lowers(aten._linalg_slogdet)
def slogdet_with_factors(A):
    return (*slogdet(A), *lu(A)[:2])


@lowers(aten.linalg_pinv.atol_rtol_tensor, aten.linalg_pinv.atol_rtol_float)
def pinv(A, atol, rtol, hermitian, /):
    """Singular values up to max(atol, rtol * the largest) count as zero. torch differentiates a
    Hermitian matrix like any other, which jnp's ``hermitian`` would not.
    """
    if rtol is None:
        has_atol = atol is not None and not (isinstance(atol, float) and atol == 0)
        rtol = jnp.finfo(A.dtype).eps * max(A.shape[-2:])
        rtol = jnp.where(jnp.asarray(atol) > 0, 0.0, rtol) if has_atol else rtol
    if A.size == 0:
        return jnp.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]), A.dtype)
    rtol = jnp.broadcast_to(jnp.asarray(rtol, A.real.dtype), A.shape[:-2])
    if atol is not None:
        top = lax.stop_gradient(jnp.linalg.norm(A, 2, axis=(-2, -1)))
        rtol = jnp.maximum(rtol, jnp.where(top > 0, atol / top, 0))
    return jnp.linalg.pinv(from_triangle(A) if hermitian else A, rtol=rtol)


@lowers(aten.linalg_pinv.default, aten.linalg_pinv.rcond_tensor)
def pinv_rcond(self, rcond, hermitian):
    return pinv(self, 0.0, rcond, hermitian)


@lowers(aten.linalg_lstsq)
def lstsq(self, b, rcond, driver):
    """The shortest solution; residuals where LAPACK's driver gives them, for full rank."""
    matrix, vector = as_matrix(self, b)
    (m, n), driver = self.shape[-2:], driver or "gelsy"
    rcond = jnp.finfo(self.dtype).eps * max(m, n) if rcond is None else rcond
    out = pinv(self, None, rcond, False) @ matrix
    values = lax.linalg.svd(self, compute_uv=False)
    rank = (values > rcond * values[..., :1]).sum(-1).astype(default_int())
    none = jnp.zeros((0,), values.dtype)
    residuals = jnp.square(jnp.abs(matrix - self @ out)).sum(-2)
    return (
        out[..., 0] if vector else out,
        residuals if m > n and driver != "gelsy" else none,
        rank if driver != "gels" else jnp.zeros((0,), rank.dtype),
        values if driver in ("gelsd", "gelss") else none,
    )
