"""Symmetric indefinite systems: Bunch and Kaufman's factorisation as LAPACK packs it.

``LD`` holds D's blocks of one or two columns and L below them; pivots count from 1 and are negative
in pairs where a block has two columns. Rows that are swapped later are not swapped in L before.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp
from jax import lax

from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops.linalg import dagger, triangular

ALPHA = (1 + 17**0.5) / 8  # bounds how elements grow over a block of two by that over two of one


def pivot(A, k):
    """(the row that becomes the block's last, whether it has two columns, whether one is left)."""
    place = jnp.arange(len(A))
    size = abs(A.real) + abs(A.imag)
    below = jnp.where(place > k, size[:, k], 0)
    i = jnp.argmax(below)
    diagonal, top = size[k, k], below[i]
    row = jnp.where((place >= k) & (place != i), size[i], 0).max()
    stay = ~(diagonal < ALPHA * top) | (diagonal >= ALPHA * top * (top / row))
    return jnp.where(stay, k, i), ~stay & (size[i, i] < ALPHA * row), jnp.maximum(diagonal, top) > 0


def multipliers(A, k, two, conj):
    """The block's columns below it, and those of L."""
    rest = jnp.arange(len(A)) > k + two
    x, y = jnp.where(rest, A[:, k], 0), jnp.where(rest & two, A[:, k + 1], 0)
    a, b, c = A[k, k], jnp.where(two, A[k + 1, k], 1), A[k + 1, k + 1]
    e, f = c / b, a / conj(b)
    scale = 1 / jnp.where(two, e * f - 1, 1)
    first_column = jnp.where(two, (e * x - y) * (scale / conj(b)), x / jnp.where(two, 1, a))
    return rest, (x, y), (first_column, (f * y - x) * (scale / b))


def step(k, carry, conj):
    A, pivots, info, second = carry
    to, two, multiplier = pivot(A, k)
    active = multiplier & ~second
    place, last = jnp.arange(len(A)), k + two
    swapped = place.at[last].set(to).at[to].set(last)
    inside = (place >= k)[:, None] & (place >= k)
    new = jnp.where(inside, A[swapped][:, swapped], A)
    rest, columns, factors = multipliers(new, k, two, conj)
    new = new - sum(jnp.outer(l, conj(x)) for l, x in zip(factors, columns))
    new = new.at[:, k].set(jnp.where(rest, factors[0], new[:, k]))
    new = new.at[:, k + 1].set(jnp.where(rest & two, factors[1], new[:, k + 1]))
    chosen = jnp.where(two, -to - 1, jnp.where(multiplier, to, k) + 1).astype("int32")
    noted = pivots.at[k].set(chosen).at[last].set(chosen)
    info = jnp.where(second | multiplier | (info > 0), info, k + 1).astype("int32")
    return jnp.where(active, new, A), jnp.where(second, pivots, noted), info, active & two


@functools.partial(jnp.vectorize, excluded={1}, signature="(n,n)->(n,n),(n),()")
def factor(A, conj):
    n = len(A)
    if not n:
        return A, jnp.zeros(0, "int32"), jnp.int32(0)
    start = A, jnp.zeros(n, "int32"), jnp.int32(0), jnp.bool_(False)
    return lax.fori_loop(0, n, functools.partial(step, conj=conj), start)[:3]


@lowers(aten.linalg_ldl_factor_ex)
def ldl_factor_ex(self, hermitian, check_errors):
    hermitian = hermitian and jnp.iscomplexobj(self)
    low = jnp.tril(self, -1)
    diagonal = self * jnp.eye(self.shape[-1], dtype=bool)
    diagonal = diagonal.real.astype(self.dtype) if hermitian else diagonal
    full = low + diagonal + (dagger(low) if hermitian else jnp.swapaxes(low, -1, -2))
    LD, pivots, info = factor(full, lax.conj if hermitian else lambda x: x)
    return jnp.tril(LD), pivots, info


@functools.partial(jnp.vectorize, excluded={2}, signature="(n,n),(n)->(n),(n,n),(n,n)")
def unpack(LD, pivots, conj):
    """(permutation, L, D): A with its rows and columns permuted is L D L^T."""
    if not len(LD):
        return pivots, LD, LD
    place = jnp.arange(len(LD))
    second = (pivots < 0) & (jnp.cumsum(pivots < 0) % 2 == 0)
    first = (pivots < 0) & ~second
    to = jnp.where(first, place, abs(pivots) - 1)
    block = jnp.diag(jnp.where(first[:-1], jnp.diag(LD, -1), 0), -1)
    D = jnp.diag(jnp.diag(LD)) + block + conj(block.T)

    def swap(k, L):
        rows = place.at[k].set(to[k]).at[to[k]].set(k)
        return jnp.where(place < k - second[k], L[rows], L)

    L = lax.fori_loop(0, len(LD), swap, jnp.tril(LD, -1) - block)
    return lax.linalg.lu_pivots_to_permutation(to.astype("int32"), len(LD)), L, D


@lowers(aten.linalg_ldl_solve)
def ldl_solve(LD, pivots, B, hermitian):
    hermitian = hermitian and jnp.iscomplexobj(LD)
    permutation, L, D = unpack(LD, pivots, lax.conj if hermitian else lambda x: x)
    shape = lax.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    B, order = jnp.broadcast_to(B, (*shape, *B.shape[-2:])), permutation[..., None]
    order = jnp.broadcast_to(order, (*shape, *order.shape[-2:]))
    B = triangular(L, jnp.take_along_axis(B, order, -2), False, unit=True)
    up = dagger(L) if hermitian else jnp.swapaxes(L, -1, -2)
    B = triangular(up, jnp.linalg.solve(D, B), True, unit=True)
    return jnp.take_along_axis(B, jnp.argsort(order, -2), -2)
