"""torch's dtypes and JAX's, and copies of tensors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax.torch.core import dtypes, interop

TORCH_DTYPE_TO_JAX: dict[torch.dtype | None, np.dtype | None] = {
    **dtypes.TO_JAX, torch.float4_e2m1fn_x2: jnp.dtype("float4_e2m1fn"), None: None,
}  # fmt: skip
JAX_DTYPE_TO_TORCH = {value: key for key, value in TORCH_DTYPE_TO_JAX.items()}
# What torch has not reads as what holds its values.
JAX_DTYPE_TO_TORCH |= {jnp.dtype("int4"): torch.int8, jnp.dtype("uint4"): torch.uint8}


def t2j(t: torch.Tensor, use_dlpack: bool = True) -> jax.Array:
    """Returns a tensor of torch's own as an array of its own.

    Args:
      t: dense or sparse.
      use_dlpack: without meaning: large tensors share their memory until one writes to it.
    """
    return interop.to_jax(t.to_dense() if t.layout is not torch.strided else t)


def j2t(x: jax.Array, use_dlpack: bool = True) -> torch.Tensor:
    """Returns a copy of an array as a tensor of torch's own.

    Args:
      x: an array.
      use_dlpack: without meaning: torch would write to memory that JAX takes to be constant.
    """
    return interop.to_torch(x)


def t2j_dtype(dtype: torch.dtype | None) -> np.dtype | None:
    """Returns JAX's dtype; RuntimeError if there is none.

    Example:
      >>> t2j_dtype(torch.bfloat16)
      dtype(bfloat16)
    """
    if dtype not in TORCH_DTYPE_TO_JAX:
        raise RuntimeError(f"Attempting to convert unknown type: {dtype} to jax type,")
    return TORCH_DTYPE_TO_JAX[dtype]


def j2t_dtype(dtype: np.dtype | None) -> torch.dtype | None:
    """Returns torch's dtype; RuntimeError if there is none.

    Example:
      >>> j2t_dtype(jnp.dtype("int4"))
      torch.int8
    """
    if dtype not in JAX_DTYPE_TO_TORCH:
        raise RuntimeError(f"Attempting to convert unknown type: {dtype} to torch type,")
    return JAX_DTYPE_TO_TORCH[dtype]
