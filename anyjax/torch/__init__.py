"""The PyTorch frontend: torch's own dispatcher drives the trace, JAX computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyjax import lazy
from anyjax.errors import imports_of

with imports_of("anyjax.torch"):
    import torch  # noqa: F401

from anyjax.private_names import check_version
from anyjax.torch import ops as _ops  # noqa: F401  (fills the table)
from anyjax.torch.core.schema import lowers
from anyjax.torch.jax_function import from_jax
from anyjax.torch.source import from_torch

if TYPE_CHECKING:
    from anyjax.torch import interop
    from anyjax.torch.dynamo.backend import compile_backend
    from anyjax.torch.eager.mode import on_jax
    from anyjax.torch.flax_module import module_from_flax

check_version("jax")
check_version("torch")

__all__ = [
    "compile_backend",
    "from_jax",
    "from_torch",
    "interop",
    "lowers",
    "module_from_flax",
    "on_jax",
]

lazy.facade(
    __name__,
    {
        "compile_backend": "anyjax.torch.dynamo.backend",
        "module_from_flax": "anyjax.torch.flax_module",
        "on_jax": "anyjax.torch.eager.mode",
    },
    parts=("interop",),
)
