"""Private names of torch that source code is written with."""

from typing import Any

import torch


def symbol_of(size: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """A symbolic number before what is known of it was put in its place."""
    return size.node._expr
