"""Products of matrices, each one ``dot_general``: XLA would copy a transposed operand."""

from __future__ import annotations

import string

import jax.numpy as jnp
from jax import lax

from tojax.tensorflow.core.schema import lowers, table


@lowers("MatMul")
def matmul(a, b, transpose_a, transpose_b, grad_a, grad_b):
    return product(a, b, transpose_a, transpose_b)


def product(a, b, turn_a, turn_b, dtype=None):
    """Leading axes broadcast; ``turn`` takes the last two axes the other way round."""
    batch = a.ndim - 2
    if b.ndim == 2 or a.shape[:batch] == b.shape[:-2]:
        shared = tuple(range(b.ndim - 2))
        axis_a = a.ndim - (2 if turn_a else 1)
        axis_b = b.ndim - (1 if turn_b else 2)
        return lax.dot_general(
            a, b, (((axis_a,), (axis_b,)), (shared, shared)), preferred_element_type=dtype
        )
    rows, columns = "ki" if turn_a else "ik", "jk" if turn_b else "kj"
    equation = f"...{rows},...{columns}->...ij"
    return jnp.einsum(equation, a, b, preferred_element_type=dtype)


def _adjoint(x, adjoint):
    return jnp.conj(x) if adjoint else x


def batched(x, y, adj_x, adj_y, grad_x, grad_y):
    return product(_adjoint(x, adj_x), _adjoint(y, adj_y), adj_x, adj_y)


table.update({"BatchMatMul": batched, "BatchMatMulV2": batched})


@lowers("BatchMatMulV3")
def batch_matmul_v3(x, y, Tout, adj_x, adj_y, grad_x, grad_y):
    """The operands may differ in dtype; products are summed in that of the result."""
    x, y = x.astype(Tout), y.astype(Tout)
    return product(_adjoint(x, adj_x), _adjoint(y, adj_y), adj_x, adj_y)


@lowers("SparseMatMul")
def sparse_matmul(a, b, transpose_a, transpose_b, a_is_sparse, b_is_sparse):
    """Dense arrays that hold many zeros."""
    return product(a.astype("float32"), b.astype("float32"), transpose_a, transpose_b)


@lowers("Einsum")
def einsum(inputs, equation):
    """A label that the output repeats is a diagonal there: times an identity matrix."""
    left, _, right = equation.replace(" ", "").partition("->")
    sizes = {}
    for labels, x in zip(left.split(","), inputs):
        before, _, after = labels.partition("...")
        sizes |= {**dict(zip(before, x.shape)), **dict(zip(after[::-1], x.shape[::-1]))}
    fresh = iter(sorted(set(string.ascii_letters) - {*left, *right}))
    distinct, eyes = "", []
    for label in right:
        if label in distinct and label != ".":
            left += f",{label}{(other := next(fresh))}"
            eyes.append(jnp.eye(sizes[label], dtype=inputs[0].dtype))
            label = other
        distinct += label
    return jnp.einsum(f"{left}->{distinct}", *inputs, *eyes)


# Biases: a vector along the channels.


@lowers("BiasAdd")
def bias_add(value, bias, data_format):
    return value + (bias if data_format == "NHWC" else bias.reshape(-1, *[1] * (value.ndim - 2)))


@lowers("BiasAddGrad")
def bias_add_grad(out_backprop, data_format):
    channels = 1 if data_format == "NCHW" else out_backprop.ndim - 1
    return jnp.sum(out_backprop, [i for i in range(out_backprop.ndim) if i != channels])


table.update({"BiasAddV1": lambda value, bias: value + bias})
