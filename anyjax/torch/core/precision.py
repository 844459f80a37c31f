"""The precision of products and convolutions in float32, which a GPU or TPU computes in fewer bits
unless it is asked not to.
"""

from __future__ import annotations

import contextlib
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
