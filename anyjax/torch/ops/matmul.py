"""Matrix products, each one ``dot_general``: the CPU would materialise a weight's transpose."""

import math

import jax.numpy as jnp
import torch
from jax import lax

from anyjax.errors import Unsupported
from anyjax.numerics import packed_matrix
from anyjax.numerics.grouped_product import by_group
from anyjax.torch.core.dtypes import TO_TORCH, to_jax
from anyjax.torch.core.schema import aten, lowers, table
from anyjax.torch.ops._operands import cast, exact, widened
from anyjax.torch.ops._xla_cpu import few, on_one_cpu, turned


def contract(a, b, dims, out_dtype=None):
    """Contracts ``dims``: (axis of a, axis of b)."""
    if a.ndim > 2 and b.ndim == 2 and dims[0] == a.ndim - 1 and on_one_cpu():
        rows = lax.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
        out = contract(rows, b, (1, dims[1]), out_dtype)
        return lax.reshape(out, (*a.shape[:-1], out.shape[-1]))
    return lax.dot_general(
        a, b, (([dims[0]], [dims[1]]), ((), ())), preferred_element_type=out_dtype
    )


def product(a, b, out_dtype=None, /):
    """``a @ b`` with torch's (and numpy's) broadcasting of batch dimensions."""
    if b.ndim <= 2:
        return contract(a, b, (a.ndim - 1, 0), out_dtype)
    if a.ndim > 1 and a.shape[:-2] == b.shape[:-2]:
        batch = tuple(range(a.ndim - 2))
        dims = (([a.ndim - 1], [b.ndim - 2]), (batch, batch))
        return lax.dot_general(a, b, dims, preferred_element_type=out_dtype)
    return jnp.matmul(a, b, preferred_element_type=out_dtype)


def plus(self, out, beta, alpha):
    """``beta * self + alpha * out``, in the tensors' dtype; with beta 0, self does not count."""
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        beta, alpha = (bool(x) if out.dtype == bool else int(x) for x in (beta, alpha))
    out = out if alpha == 1 else alpha * out
    if beta == 0:
        return out
    return (self if beta == 1 else beta * self) + out


@lowers(aten.linear)
def linear(input, weight, bias):
    short = packed_matrix.packed_form(weight)
    out = None if short is None else short.product(input)
    if out is None and few(input, weight):
        out = turned(input, weight)
    elif out is None:
        out = contract(input, weight, (input.ndim - 1, weight.ndim - 1))
    return out if bias is None else out + bias


table.update(
    {
        aten.mm.default: product,
        aten.mm.dtype: product,
        aten.bmm.default: product,
        aten.bmm.dtype: product,
        aten.mv: product,
        aten.matmul: product,
        aten.linalg_matmul: product,
        aten.dot: product,
        aten.vdot: lambda self, other: product(
            lax.conj(self) if jnp.iscomplexobj(self) else self, other
        ),
        aten.inner: jnp.inner,
        aten._int_mm: lambda self, mat2: product(self, mat2, jnp.int32),
        aten.addr: widened(
            lambda self, vec1, vec2, beta, alpha: plus(self, vec1[:, None] * vec2, beta, alpha)
        ),
        aten.addbmm: lambda self, batch1, batch2, beta, alpha: plus(
            self, jnp.einsum("bij,bjk->ik", batch1, batch2), beta, alpha
        ),
        aten.bilinear: widened(
            lambda input1, input2, weight, bias: (
                jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
                + (0 if bias is None else bias)
            )
        ),
    }
)


@lowers(aten.addmm.default, aten.addmv, aten.baddbmm.default)
def add_product(self, a, b, beta, alpha, /):
    return plus(self, product(a, b), beta, alpha)


@lowers(aten.addmm.dtype, aten.baddbmm.dtype)
def add_product_in_dtype(self, a, b, out_dtype, beta, alpha, /):
    return plus(self.astype(out_dtype), product(a, b, out_dtype), beta, alpha)


@lowers(aten.einsum.default)
def einsum(equation, tensors, path):
    """An ellipsis that the output does not name is summed over; the path only decides the order.
    Integers become int64 where torch takes a plain sum on the way, and keep their dtype elsewhere.
    """
    if exact(tensors[0]):
        shapes = [torch.empty(t.shape, dtype=TO_TORCH[t.dtype], device="meta") for t in tensors]
        dtype = to_jax(aten.einsum(equation, shapes).dtype)
        tensors = [cast(t, dtype) for t in tensors]
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    if arrow and "..." in inputs and "..." not in output:
        out = jnp.einsum(f"{inputs}->...{output}", *tensors)
        return out.sum(tuple(range(out.ndim - len(output))))
    return jnp.einsum(inputs + arrow + output, *tensors)


@lowers(aten.tensordot)
def tensordot(self, other, dims_self, dims_other):
    """A contracted dimension of size 1 broadcasts against the other tensor's."""
    for i, j in zip(dims_self, dims_other, strict=True):
        if self.shape[i] == 1 != other.shape[j]:
            other = other.sum(j, keepdims=True, dtype=other.dtype)
        elif other.shape[j] == 1 != self.shape[i]:
            self = self.sum(i, keepdims=True, dtype=self.dtype)
    return jnp.tensordot(self, other, (dims_self, dims_other))


@lowers(aten._trilinear)
@widened
def trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim):
    i1, i2, i3 = (jnp.expand_dims(x, e) for x, e in ((i1, expand1), (i2, expand2), (i3, expand3)))
    return (i1 * i2 * i3).sum(tuple(sumdim))


def ragged_product(lhs, rhs, sizes, dims, dtype=None):
    """``lax.ragged_dot_general`` under any ``vmap``: JAX 0.10 batches it only where all operands
    are batched, along their first dimension. A slice of full size begins at 0 whatever it is told,
    but is batched if that is; elsewhere XLA drops it.
    """
    nonzeros = sum((x[(slice(0, 1),) * x.ndim] != 0).sum() for x in (lhs, rhs, sizes))
    alike = lambda x: lax.dynamic_index_in_dim(x[None], nonzeros, 0, keepdims=False)
    operands = map(alike, (lhs, rhs, sizes))
    return alike(lax.ragged_dot_general(*operands, dims, preferred_element_type=dtype))


@lowers(aten._grouped_mm)
def grouped_mm(self, mat2, offs, bias, out_dtype):
    """``offs`` holds the ends of the groups along the one dimension that is ragged."""
    if bias is not None:
        raise Unsupported(
            "_grouped_mm with a bias",
            why="torch has no kernel for it either",
            do="add it afterwards",
        )
    if offs is None:
        return product(self, mat2, out_dtype)
    sizes = jnp.diff(offs, prepend=0)
    # lhs is the operand whose own dimension is ragged
    flip = self.ndim == 3
    lhs, rhs = (mat2, self) if flip else (self, mat2)
    contracted = ([0], [2]) if flip else ([1], [rhs.ndim - 2])
    groups = [0] if rhs.ndim == 3 else []
    ragged = [1] if flip or rhs.ndim == 2 else [0]
    dims = lax.RaggedDotDimensionNumbers((contracted, ([], [])), ragged, groups)
    run = lambda *operands: ragged_product(*operands, dims, out_dtype)
    if groups and not flip:
        return by_group(run, lhs, rhs, sizes, out_dtype)
    return run(lhs, rhs, sizes).T if flip else run(lhs, rhs, sizes)


@lowers(aten._weight_int8pack_mm)
def weight_int8pack_mm(self, mat2, scales):
    """For one row a fused multiply and sum, which makes no float copy of the weight."""
    if self.shape[0] == 1:
        out = (mat2.astype(jnp.float32) * self.astype(jnp.float32)).sum(1)[None] * scales
        return out.astype(self.dtype)
    return contract(self, mat2.astype(self.dtype), (1, 1)) * scales


@lowers(aten._scaled_mm)
def scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum):
    """Scales per tensor or per row and column factor out of the product; blocks of them do not."""
    rowwise = scale_a.shape == (self.shape[0], 1) and scale_b.shape == (1, mat2.shape[1])
    if not rowwise and scale_a.size * scale_b.size != 1:
        raise Unsupported(
            f"_scaled_mm with scales of shapes {scale_a.shape} and {scale_b.shape}",
            why="scales per block do not factor out of the product",
            do="use scales per tensor or per row, or dequantize first",
        )
    if not rowwise:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    out = product(self.astype(jnp.float32), mat2.astype(jnp.float32)) * scale_a * scale_b
    out = out if bias is None else out + bias.astype(jnp.float32)
    out = out if scale_result is None else out * scale_result
    return out.astype(self.dtype if out_dtype is None else out_dtype)


@lowers(aten._scaled_grouped_mm)
def scaled_grouped_mm(
    self, mat2, scale_a, scale_b, offs, bias, scale_result, out_dtype, use_fast_accum
):
    raise Unsupported(
        "_scaled_grouped_mm", why="fp8 groups have no JAX form", do="dequantize the weights"
    )
