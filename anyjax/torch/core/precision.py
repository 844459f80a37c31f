"""The precision of products and convolutions in float32, which a GPU or TPU computes in fewer bits
unless it is asked not to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import jax
import torch

from anyjax.errors import WrongArguments
from anyjax.numerics.attention import by_formula

Option = Literal["torch", "default", "highest", "exact"]
OF_TORCH = {"highest": "highest", "high": "high", "medium": "default"}


class Precision(NamedTuple):
    """The precision that JAX is asked for; None leaves it to JAX's own default.

    Attributes:
      products: of matrices.
      convolutions: the same for convolutions, which torch has a flag of its own for.
      formula: attention is its formula, not the kernels of the platform.
    """

    products: str | None
    convolutions: str | None
    formula: bool = False

    def __str__(self) -> str:
        if self.products is None:
            return "JAX's default"
        attention = ", attention by its formula" if self.formula else ""
        return f"{self.products} for products, {self.convolutions} for convolutions{attention}"

    def around(self) -> contextlib.AbstractContextManager:
        """Makes the context in which products are traced."""
        if self.products is None:
            return contextlib.nullcontext()
        products = jax.default_matmul_precision(self.products)
        return _with_formula(products) if self.formula else products

    @property
    def asks(self) -> bool:
        """Whether products of float32 get another precision than JAX's own."""
        return self.products not in (None, "default")

    def for_narrow(self) -> contextlib.AbstractContextManager:
        """Makes the context in which an operator of 16-bit numbers is computed, within ``around``.

        They are multiplied exactly in any case, and kernels of TPUs refuse them with a precision
        that is meant for float32.
        """
        return jax.default_matmul_precision("default")


@contextlib.contextmanager
def _with_formula(products: contextlib.AbstractContextManager) -> Iterator[None]:
    with products, by_formula():
        yield


NARROW = {torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
WIDE = {torch.float32, torch.float64, torch.complex64, torch.complex128}


def are_narrow(operands: Iterable[torch.Tensor]) -> bool:
    """Returns whether there are floats among the operands, and none of more than 16 bits."""
    narrow = False
    for operand in operands:
        dtype = operand.dtype
        if dtype in WIDE:
            return False
        narrow = narrow or dtype in NARROW
    return narrow


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
        case "exact":
            return Precision("highest", "highest", formula=True)
    raise WrongArguments(
        f"precision={option!r}",
        why="it is one of torch, default, highest and exact",
        do='leave it out for what torch computes, or pass precision="default" for JAX\'s own',
    )
