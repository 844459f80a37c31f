"""The PyTorch frontend: torch's own dispatcher drives the trace, JAX computes."""

from tojax.private_names import check_version
from tojax.torch import ops as _ops  # noqa: F401  (fills the table)
from tojax.torch.core.schema import lowers
from tojax.torch.source import from_torch

check_version("jax")
check_version("torch")

__all__ = ["from_torch", "lowers"]
