"""``torch.no_grad`` for gradients that JAX takes."""

from __future__ import annotations

from typing import Any

import jax

from anyjax.dtypes import is_float
from anyjax.torch.core.tensor import JaxTensor
from anyjax.typing import PyTree

# How functionalization takes a view that was written back into its base.
INTO_BASE = tuple(f"aten.{kind}_scatter" for kind in ("slice", "select", "diagonal", "as_strided"))


def cut(call, out: PyTree, operands: list, writing: bool) -> Any:
    """Returns the result of an operator inside ``no_grad``: it has no gradient.

    In a write, autograd does not see the new value: the target keeps the gradient that it had.
    """
    if writing and (call.view or call.signature.name.startswith(INTO_BASE)):
        return out
    first = operands[0] if writing and operands else None

    def one(x):
        if not isinstance(x, jax.Array) or not is_float(x.dtype):
            return x
        if isinstance(first, JaxTensor) and first.shape == x.shape and is_float(first.array.dtype):
            return with_gradient_of(first.array, x)
        return jax.lax.stop_gradient(x)

    return jax.tree.map(one, out)


@jax.custom_jvp
def with_gradient_of(before, after):
    """``after``, differentiated as if it were ``before``."""
    return after


with_gradient_of.defjvp(
    lambda primals, tangents: (primals[1], tangents[0].astype(primals[1].dtype))
)
