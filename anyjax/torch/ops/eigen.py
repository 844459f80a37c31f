"""Eigenvalues, singular values, QR and Householder reflectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from anyjax.private_names import known_arguments
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops.linalg import dagger, hermitian

VECTORS = known_arguments(lax.linalg.eig, enable_eigvec_derivs=True)  # JAX 0.10.2


@lowers(aten.linalg_eigh)
def eigh(self, UPLO):
    upper = UPLO.upper() == "U"
    x = hermitian(self, upper)  # JAX's derivative looks at both triangles
    vectors, values = lax.linalg.eigh(x, lower=not upper, symmetrize_input=False)
    return values, vectors


@lowers(aten._linalg_eigh)
def eigh_or_values(A, UPLO, compute_v):
    values, vectors = eigh(A, UPLO)
    return values, vectors if compute_v else jnp.zeros((0,), vectors.dtype)


@lowers(aten.linalg_eig)
def eig(self):
    if not self.size:
        self = self.astype(jnp.result_type(self, jnp.complex64))
        return jnp.zeros(self.shape[:-1], self.dtype), self
    return tuple(lax.linalg.eig(self, compute_left_eigenvectors=False, **VECTORS))


@lowers(aten.linalg_eigvals, aten._linalg_eigvals)
def eigvals(self):
    return eig(self)[0]


@jax.custom_jvp
def full_svd(A):
    return tuple(lax.linalg.svd(A, full_matrices=True))


@full_svd.defjvp
def full_svd_jvp(primals, tangents):
    """As in torch the columns beyond the singular values are constant."""
    U, S, Vh = full_svd(*primals)
    thin = lambda A: tuple(lax.linalg.svd(A, full_matrices=False))
    (u, _, _), (du, dS, dvh) = jax.jvp(thin, primals, tangents)
    k = S.shape[-1]
    turn = (jnp.conj(u) * U[..., :k]).sum(-2)  # the two may differ by a sign or phase
    dU = jnp.zeros_like(U).at[..., :k].set(du * turn[..., None, :])
    dVh = jnp.zeros_like(Vh).at[..., :k, :].set(dvh * jnp.conj(turn)[..., :, None])
    return (U, S, Vh), (dU, dS, dVh)


@lowers(aten.linalg_svd)
def svd(A, full_matrices, driver):
    if full_matrices and A.shape[-1] != A.shape[-2]:
        return full_svd(A)
    return tuple(lax.linalg.svd(A, full_matrices=False))


@lowers(aten.linalg_svdvals)
def svdvals(A, driver):
    return lax.linalg.svd(A, compute_uv=False)


@lowers(aten._linalg_svd)
def svd_or_values(A, full_matrices, compute_uv, driver):
    if compute_uv:
        return svd(A, full_matrices, driver)
    none = jnp.zeros((0,), A.dtype)
    return none, svdvals(A, driver), none


@lowers(aten.linalg_qr)
def qr(A, mode):
    """Wide matrices are split, because JAX has no derivative for them."""
    m, n = A.shape[-2:]
    Q, R = lax.linalg.qr(A[..., :m], full_matrices=mode == "complete" and m > n)
    R = jnp.concatenate([R, dagger(Q) @ A[..., m:]], -1) if n > m else R
    return (jnp.zeros((0,), A.dtype) if mode == "r" else Q), R


@lowers(aten.geqrf)
def geqrf(self):
    packed, tau = jnp.linalg.qr(self, mode="raw")
    return jnp.swapaxes(packed, -1, -2), tau


def reflectors(packed, tau):
    """(V, T) with H_1 ... H_k = I - V T V^H, which has a derivative and needs no loop."""
    m, k = packed.shape[-2], tau.shape[-1]
    eye = jnp.eye(m, k, dtype=packed.dtype)
    V = jnp.tril(packed[..., :k], -1) + eye
    scale = tau[..., None] * eye[:k]
    above = jnp.triu(dagger(V) @ V, 1) * tau[..., None]
    T = lax.linalg.triangular_solve(above, scale, left_side=True, lower=False, unit_diagonal=True)
    return V, T


@lowers(aten.linalg_householder_product)
def householder_product(input, tau):
    m, n = input.shape[-2:]
    V, T = reflectors(input, tau)
    return jnp.eye(m, n, dtype=input.dtype) - V @ (T @ dagger(V[..., :n, :]))


@lowers(aten.ormqr)
def ormqr(self, input2, input3, left, transpose):
    V, T = reflectors(self, input2)
    T = dagger(T) if transpose else T
    if left:
        return input3 - V @ (T @ (dagger(V) @ input3))
    return input3 - ((input3 @ V) @ T) @ dagger(V)
