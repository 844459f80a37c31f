"""Products of matrices."""

from __future__ import annotations

from jax import lax

from tojax.tensorflow.core.schema import lowers


@lowers("MatMul")
def matmul(a, b, transpose_a, transpose_b, grad_a, grad_b):
    """One product, whichever way its matrices lie: XLA copies a transposed one."""
    return lax.dot_general(
        a, b, (((0 if transpose_a else 1,), (1 if transpose_b else 0,)), ((), ()))
    )
