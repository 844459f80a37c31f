"""Eigenvalues, singular values and functions of matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tojax.tensorflow.core.schema import lowers
from tojax.tensorflow.ops.linalg import dagger, from_lower


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
    """LAPACK's, so on CPUs; its vectors have no gradient in JAX."""
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
    """XLA's own iteration has no derivative that is a number."""
    return svd(a, True, False)


@lowers("XlaSelfAdjointEig")
def xla_self_adjoint_eig(a, lower, max_iter, epsilon):
    return self_adjoint_eig(a if lower else dagger(a), True)


def exponential(input, /):
    return jax.scipy.linalg.expm(input)


@jax.custom_jvp
def square_root(input, /):
    """The principal one, by Schur's form."""
    found = jnp.vectorize(jax.scipy.linalg.sqrtm, signature="(n,n)->(n,n)")(input)
    return found if jnp.iscomplexobj(input) else found.real.astype(input.dtype)


@square_root.defjvp
def _square_root_jvp(primals, tangents):
    """R dR + dR R = dA, as one system for all of dR."""
    root = square_root(*primals)
    n = root.shape[-1]
    eye = jnp.eye(n, dtype=root.dtype)
    system = jnp.einsum("...ik,jl->...ijkl", root, eye) + jnp.einsum("ik,...lj->...ijkl", eye, root)
    flat = (*root.shape[:-2], n * n)
    along = jnp.linalg.solve(system.reshape(*flat, n * n), tangents[0].reshape(*flat, 1))
    return root, along.reshape(root.shape)


lowers("MatrixSquareRoot")(square_root)
lowers("MatrixExponential")(exponential)
