"""LAPACK's routines by JAX's functions, which have derivatives.

Each takes (operands, options, types) and returns the outputs of the routine; ``info`` is 0, because
JAX marks a failure by NaN.
"""

from __future__ import annotations

import inspect

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.stablehlo.ops.linalg import geqrf, householder_product

linalg = lax.linalg


def letter(options, name):
    """Returns an option that is the code of a letter."""
    return chr(options[name])


def is_lower(options):
    return letter(options, "uplo") == "L" if "uplo" in options else bool(options["lower"])


def info(a):
    return jnp.zeros(a.shape[:-2], np.int32)


def potrf(operands, options, types):
    (a,) = operands
    if is_lower(options):
        out = linalg.cholesky(a, symmetrize_input=False)
    else:
        upper = jnp.conj(jnp.swapaxes(a, -1, -2))
        out = jnp.conj(jnp.swapaxes(linalg.cholesky(upper, symmetrize_input=False), -1, -2))
    return out, info(a)


def getrf(operands, options, types):
    """Counts rows from 1, as LAPACK does."""
    lu, pivots, _ = linalg.lu(operands[0])
    return lu, pivots + 1, info(lu)


def geqrf_(operands, options, types):
    return geqrf(operands[0])


def geqp3(operands, options, types):
    *_, order = linalg.qr(lax.stop_gradient(operands[0]), pivoting=True, full_matrices=False)
    a, taus = geqrf(jnp.take_along_axis(operands[0], order[..., None, :], -1))
    return a, order + 1, taus


def orgqr(operands, options, types):
    return (householder_product(*operands),)


def ormqr(operands, options, types):
    a, taus, c = operands
    is_left, transpose = bool(options["left"]), bool(options["transpose"])
    m = a.shape[-2]
    wide = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, max(m - a.shape[-1], 0))])[..., :m]
    q = householder_product(wide, taus)
    q = jnp.conj(jnp.swapaxes(q, -1, -2)) if transpose else q
    return (q @ c if is_left else c @ q,)


def syevd(operands, options, types):
    v, w = linalg.eigh(operands[0], lower=is_lower(options), symmetrize_input=False)
    return v, w.astype(types[1].dtype), info(v)


def gesdd(operands, options, types):
    """Has the modes A (all of U and V), S (the vectors of singular values), N (no vectors)."""
    (a,) = operands
    mode = letter(options, "mode")
    if mode == "N":
        s = linalg.svd(a, compute_uv=False)
        return a, s, *(jnp.zeros(t.shape, t.dtype) for t in types[2:4]), info(a)
    u, s, vt = linalg.svd(a, full_matrices=mode == "A")
    return a, s, u, vt, info(a)


def geev(operands, options, types):
    """Returns the real and imaginary parts of real matrices' eigenvalues separately."""
    (a,) = operands
    sides = [letter(options, f"compute_{side}") == "V" for side in ("left", "right")]
    how = {"enable_eigvec_derivs": True}  # an option, as they hold for simple eigenvalues alone
    how = {k: v for k, v in how.items() if k in inspect.signature(linalg.eig).parameters}
    w, *vectors = linalg.eig(
        a, compute_left_eigenvectors=sides[0], compute_right_eigenvectors=sides[1], **how
    )
    computed = iter(vectors)
    both = [next(computed) if on else jnp.zeros(a.shape, w.dtype) for on in sides]
    values = [w] if jnp.iscomplexobj(a) else [jnp.real(w), jnp.imag(w)]
    return *values, *both, info(a)


def gees(operands, options, types):
    (a,) = operands
    form, vectors = linalg.schur(a)
    diagonal = jnp.diagonal(form, axis1=-2, axis2=-1)
    values = [diagonal] if jnp.iscomplexobj(a) else [diagonal, jnp.zeros_like(diagonal)]
    return form, vectors, *values, info(a), info(a)


def gehrd(operands, options, types):
    a, taus = linalg.hessenberg(operands[0])
    return a, taus, info(a)


def sytrd(operands, options, types):
    a, d, e, taus = linalg.tridiagonal(operands[0], lower=is_lower(options))
    return a, d, e, taus, info(a)


def trsm(operands, options, types):
    turn = letter(options, "trans_x")
    out = linalg.triangular_solve(
        *operands,
        left_side=letter(options, "side") == "L",
        lower=is_lower(options),
        transpose_a=turn != "N",
        conjugate_a=turn == "C",
        unit_diagonal=letter(options, "diag") == "U",
    )
    return (out,)


def gtsv(operands, options, types):
    return *operands[:3], linalg.tridiagonal_solve(*operands), info(operands[3])


def gesvd_gpu(operands, options, types):
    """Swaps U and the transpose of V if ``transposed``."""
    (a,) = operands
    full = bool(options["full_matrices"])
    if not options["compute_uv"]:
        s = linalg.svd(a, compute_uv=False)
        return a, s, *(jnp.zeros(t.shape, t.dtype) for t in types[2:4]), info(a)
    u, s, vt = linalg.svd(a, full_matrices=full)
    return a, s, *((vt, u) if options.get("transposed") else (u, vt)), info(a)


def gesvdj_gpu(operands, options, types):
    """Returns V where ``gesvd`` returns its transpose."""
    a, s, u, vt, failed = gesvd_gpu(operands, options, types)
    return a, s, u, jnp.conj(jnp.swapaxes(vt, -1, -2)), failed


def pivots_to_permutation(operands, options, types):
    size = types[0].shape[-1]
    return (linalg.lu_pivots_to_permutation(operands[0], size),)


def eigh_tpu(operands, options, types):
    """Reads from its options, one text, only whether the lower triangle counts."""
    lower = not str(options).startswith("0")
    return linalg.eigh(operands[0], lower=lower, symmetrize_input=False)


CPU = {
    "potrf": potrf, "getrf": getrf, "geqrf": geqrf_, "geqp3": geqp3, "orgqr": orgqr,
    "ungqr": orgqr, "ormqr": ormqr, "unmqr": ormqr, "syevd": syevd, "heevd": syevd,
    "gesdd": gesdd, "gesvd": gesdd, "geev": geev, "gees": gees, "gehrd": gehrd, "sytrd": sytrd,
    "hetrd": sytrd, "trsm": trsm, "gtsv": gtsv,
}  # fmt: skip
GPU = {
    "solver_potrf_ffi": potrf, "solver_getrf_ffi": getrf, "solver_geqrf_ffi": geqrf_,
    "solver_orgqr_ffi": orgqr, "solver_ormqr_ffi": ormqr, "solver_syevd_ffi": syevd,
    "solver_gesvd_ffi": gesvd_gpu, "solver_gesdd_ffi": gesvd_gpu, "solver_gesvdj_ffi": gesvdj_gpu,
    "solver_gesvdp_ffi": gesvdj_gpu, "solver_sytrd_ffi": sytrd,
    "sparse_gtsv2_ffi": lambda operands, options, types: (linalg.tridiagonal_solve(*operands),),
    "_lu_pivots_to_permutation": pivots_to_permutation,
}  # fmt: skip
TPU = {
    "Qr": geqrf_,
    "ProductOfElementaryHouseholderReflectors": orgqr,
    "LuDecomposition": lambda operands, options, types: linalg.lu(operands[0]),
    "Eigh": eigh_tpu,
}
ROUTINES = {f"lapack_{kind}{name}_ffi": f for name, f in CPU.items() for kind in "sdcz"}
ROUTINES |= {f"{vendor}{name}": f for name, f in GPU.items() for vendor in ("cu", "hip")}
ROUTINES |= TPU
