"""The PyTorch frontend: torch's own dispatcher drives the trace, JAX computes."""

from __future__ import annotations

from typing import Any

from tojax.private_names import check_version
from tojax.torch import ops as _ops  # noqa: F401  (fills the table)
from tojax.torch.core.schema import lowers
from tojax.torch.jax_function import from_jax
from tojax.torch.source import from_torch

check_version("jax")
check_version("torch")

__all__ = ["compile_backend", "from_jax", "from_torch", "lowers", "module_from_flax"]


def __getattr__(name: str) -> Any:
    match name:
        case "module_from_flax":  # which imports flax
            from tojax.torch.flax_module import module_from_flax

            return module_from_flax
        case "compile_backend":
            from tojax.torch.dynamo.backend import compile_backend

            return compile_backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
