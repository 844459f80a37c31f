"""The PyTorch frontend: torch's own dispatcher drives the trace, JAX computes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anyjax.errors import imports_of

with imports_of("anyjax.torch"):
    import torch  # noqa: F401

from anyjax.private_names import check_version
from anyjax.torch import ops as _ops  # noqa: F401  (fills the table)
from anyjax.torch.core.schema import lowers
from anyjax.torch.jax_function import from_jax
from anyjax.torch.source import from_torch

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

LATER = {  # what is imported when it is first used
    "compile_backend": "anyjax.torch.dynamo.backend",
    "interop": "anyjax.torch.interop",
    "module_from_flax": "anyjax.torch.flax_module",
    "on_jax": "anyjax.torch.eager.mode",
}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(LATER[name])
    return module if name == "interop" else getattr(module, name)
