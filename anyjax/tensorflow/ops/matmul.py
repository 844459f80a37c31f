"""Products of matrices and tensors, and biases."""

from __future__ import annotations

import string

import jax.numpy as jnp

from anyjax.numerics.matmul import product
from anyjax.tensorflow.core.schema import lowers, table


@lowers("MatMul")
def matmul(a, b, transpose_a, transpose_b, grad_a, grad_b):
    return product(a, b, transpose_a, transpose_b)


def _adjoint(x, adjoint):
    return jnp.conj(x) if adjoint else x


def batched(x, y, adj_x, adj_y, grad_x, grad_y):
    return product(_adjoint(x, adj_x), _adjoint(y, adj_y), adj_x, adj_y)


table.update({"BatchMatMul": batched, "BatchMatMulV2": batched})


@lowers("BatchMatMulV3")
def batch_matmul_v3(x, y, Tout, adj_x, adj_y, grad_x, grad_y):
    """The operands may differ in dtype; products are summed in the dtype of the result."""
    x, y = x.astype(Tout), y.astype(Tout)
    return product(_adjoint(x, adj_x), _adjoint(y, adj_y), adj_x, adj_y)


@lowers("SparseMatMul")
def sparse_matmul(a, b, transpose_a, transpose_b, a_is_sparse, b_is_sparse):
    """Dense arrays that hold many zeros."""
    return product(a.astype("float32"), b.astype("float32"), transpose_a, transpose_b)


@lowers("Einsum")
def einsum(inputs, equation):
    """A label that the output repeats is a diagonal there: a product with an identity matrix."""
    operands, _, result = equation.replace(" ", "").partition("->")
    sizes = {}
    for labels, x in zip(operands.split(","), inputs):
        first, _, last = labels.partition("...")
        sizes |= {**dict(zip(first, x.shape)), **dict(zip(last[::-1], x.shape[::-1]))}
    unused = iter(sorted(set(string.ascii_letters) - {*operands, *result}))
    distinct, eyes = "", []
    for label in result:
        if label in distinct and label != ".":
            operands += f",{label}{(new_label := next(unused))}"
            eyes.append(jnp.eye(sizes[label], dtype=inputs[0].dtype))
            label = new_label
        distinct += label
    return jnp.einsum(f"{operands}->{distinct}", *inputs, *eyes)


# Biases: a vector along the channels.


@lowers("BiasAdd")
def bias_add(value, bias, data_format):
    return value + (bias if data_format == "NHWC" else bias.reshape(-1, *[1] * (value.ndim - 2)))


@lowers("BiasAddGrad")
def bias_add_grad(out_backprop, data_format):
    channels = 1 if data_format == "NCHW" else out_backprop.ndim - 1
    return jnp.sum(out_backprop, [i for i in range(out_backprop.ndim) if i != channels])


table.update({"BiasAddV1": lambda value, bias: value + bias})
