"""The PyTorch frontend: torch's own dispatcher drives the trace, JAX computes."""

from tojax.torch import ops as _ops  # noqa: F401  (fills the table)
from tojax.torch.source import from_torch
from tojax.torch.table import lowers, table

__all__ = ["from_torch", "lowers", "table"]
