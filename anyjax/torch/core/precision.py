"""The precision of products and convolutions in float32, which a GPU or TPU computes in fewer bits
unless it is asked not to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Literal, NamedTuple

import jax
import torch

from anyjax.errors import WrongArguments

Option = Literal["torch", "default", "highest"]
OF_TORCH = {"highest": "highest", "high": "high", "medium": "default"}


class Precision(NamedTuple):
    """The precision that JAX is asked for; None leaves it to JAX's own default.

    Attributes:
      products: of matrices.
      convolutions: the same for convolutions, which torch has a flag of its own for.
    """

    products: str | None
    convolutions: str | None

    def __str__(self) -> str:
        if self.products is None:
            return "JAX's default"
        return f"{self.products} for products, {self.convolutions} for convolutions"

    def around(self) -> contextlib.AbstractContextManager:
        """Makes the context in which products are traced."""
        if self.products is None:
            return contextlib.nullcontext()
        return jax.default_matmul_precision(self.products)

    def within(self, operands: Iterable[torch.Tensor]) -> contextlib.AbstractContextManager:
        """Makes the context in which one operator is computed, within that of ``around``.

        Numbers of 16 bits and fewer are multiplied exactly in any case, and kernels of TPUs refuse
        them with a precision that is meant for float32.
        """
        if self.products in (None, "default") or not _are_narrow(operands):
            return UNCHANGED
        return jax.default_matmul_precision("default")


UNCHANGED = contextlib.nullcontext()


def _are_narrow(operands: Iterable[torch.Tensor]) -> bool:
    """Whether there are floats among the operands, and none of them has more than 16 bits."""
    kinds = {x.dtype for x in operands}
    floats = [x for x in kinds if x.is_floating_point or x.is_complex]
    return bool(floats) and all(x.itemsize <= 2 for x in floats)


UNASKED = Precision(None, None)


def precision_of(option: Option) -> Precision:
    """Returns what an option stands for; that of ``"torch"`` are its flags as they are now.

    ``torch.get_float32_matmul_precision()`` is "highest" unless somebody changed it: float32.
    ``torch.backends.cudnn.allow_tf32`` is True: convolutions may round to TF32 on GPUs, JAX's
    "high".

    Raises:
      WrongArguments: there is no such option.

    Example:
      >>> print(precision_of("torch"))
      highest for products, high for convolutions
    """
    match option:
        case "torch":
            convolutions = "high" if torch.backends.cudnn.allow_tf32 else "highest"
            return Precision(OF_TORCH[torch.get_float32_matmul_precision()], convolutions)
        case "default":
            return UNASKED
        case "highest":
            return Precision("highest", "highest")
    raise WrongArguments(
        f"precision={option!r}",
        why="it is one of torch, default and highest",
        do='leave it out for what torch computes, or pass precision="default" for JAX\'s own',
    )
